"""Members of chats, through `for_user`: what readers and writers see and do, and what a removed one does not."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.agent_threads import put
from tests.support.cases import case
from tests.support.embedding_world import Words
from tests.support.ledger_world import check_chat
from tests.support.operation_counting import counting
from tests.support.soak import examples

import chatledger
from chatledger import (
    AccessDeniedError,
    ContextEngine,
    InvalidValueError,
    Ledger,
    NewMessage,
    NotFoundError,
    assistant,
    user,
)
from chatledger.errors import (
    AlreadyExistsError,
    ChatExistsError,
    ChatNotFoundError,
    LiveStreamNotFoundError,
    OwnerMismatchError,
)
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.threads import Threads
from chatledger.projections.lmdb.environment import prefixed
from chatledger.projections.lmdb.keys import Tag, chat_key

WRITES: Final[dict[str, Callable[[Ledger], Any]]] = {
    "append": lambda ledger: ledger.append("trip", user("no")),
    "add": lambda ledger: ledger.add_messages("trip", [NewMessage("user", "no", id="new", parent_id="m1")]),
    "title": lambda ledger: ledger.update_chat("trip", title="no"),
    "branch": lambda ledger: ledger.create_branch("trip", "side", "m1"),
    "fork": lambda ledger: ledger.fork("trip", "m1"),
    "active": lambda ledger: ledger.set_active_branch("trip", "other"),
    "move": lambda ledger: ledger.move_head("trip", "main", "m1", expected=chatledger.ANY),
    "rename": lambda ledger: ledger.rename_branch("trip", "main", "else"),
    "delete branch": lambda ledger: ledger.delete_branch("trip", "other"),
    "checkpoint": lambda ledger: ledger.set_checkpoint("trip", "mark", "m1"),
    "annotate": lambda ledger: ledger.annotate("trip", "m1", hidden=True),
    "run": lambda ledger: ledger.record_run("trip", "r", thread_id="trip", assistant_id="a"),
    "thread": lambda ledger: put(Threads(ledger), "trip", "9", {"x": "y"}),
    "live": lambda ledger: ledger.live("trip").discard(),
}
"""Calls that a writer may make, and a reader may not."""

OWNERS: Final[dict[str, Callable[[Ledger], Any]]] = {
    "delete": lambda ledger: ledger.delete_chat("trip"),
    "end": lambda ledger: ledger.update_chat("trip", ttl_seconds=1),
    "let in": lambda ledger: ledger.set_member("trip", "eve", "reader"),
    "promote": lambda ledger: ledger.set_member("trip", "bob", "writer"),
    "demote": lambda ledger: ledger.set_member("trip", "cy", "reader"),
    "throw out": lambda ledger: ledger.remove_member("trip", "cy"),
    "delete thread": lambda ledger: Threads(ledger).delete("trip"),
}
"""Calls that only the owner may make."""

READS: Final[dict[str, Callable[[Ledger], Any]]] = {
    "chat": lambda ledger: ledger.get_chat("trip"),
    "messages": lambda ledger: ledger.get_messages("trip"),
    "message": lambda ledger: ledger.get_message("m1"),
    "chain": lambda ledger: ledger.get_chain("m2"),
    "branches": lambda ledger: ledger.list_branches("trip"),
    "branch": lambda ledger: ledger.get_branch(id=ledger.list_branches("trip")[0].id),
    "checkpoints": lambda ledger: ledger.list_checkpoints("trip"),
    "members": lambda ledger: ledger.members("trip"),
    "owner": lambda ledger: ledger.owner_of("trip"),
    "page": lambda ledger: ledger.get_page("trip"),
    "graph": lambda ledger: ledger.graph("trip"),
    "rows": lambda ledger: ledger.get_rows("trip"),
    "runs": lambda ledger: ledger.runs("trip"),
    "export": lambda ledger: ledger.export_chat("trip"),
    "history": lambda ledger: list(ledger.history("trip")),
    "feed": lambda ledger: list(ledger.feed(0, chat_id="trip", follow=False)),
    "search": lambda ledger: ledger.search("leeks", chat_id="trip"),
    "search by owner": lambda ledger: ledger.search("leeks", user_id="ada"),
    "list by owner": lambda ledger: ledger.list_chats(user_id="ada", metadata={"kind": "trip"}),
    "thread": lambda ledger: Threads(ledger).namespaces("trip"),
    "export thread": lambda ledger: ledger.export_thread("trip"),
}
"""Questions to which all members get the same answers."""


def text(content: str, message_id: str) -> NewMessage:
    return NewMessage("user", content, id=message_id)


@pytest.fixture
def whole() -> Iterator[Ledger]:
    """Ada's chat, with a reader Bob and a writer Cy; Bob and Eve have chats of their own."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada", metadata={"kind": "trip"}, members={"bob": "reader", "cy": "writer"})
        ledger.append("trip", [text("leeks", "m1"), text("more leeks", "m2")])
        ledger.create_branch("trip", "other", "m1")
        ledger.set_checkpoint("trip", "start", "m1")
        ledger.record_run("trip", "r0", thread_id="trip", assistant_id="a")
        put(Threads(ledger.for_user("ada")), "trip", "1", {"city": "Riga"})
        for name in ("bob", "eve"):
            ledger.create_chat(f"of {name}", name)
            ledger.append(f"of {name}", text(f"leeks of {name}", f"own {name}"))
        yield ledger


def test_members_read_what_the_owner_reads(whole: Ledger) -> None:
    """A reader and a writer see all of the chat, a stranger what they would see if it were not there."""
    ada, bob, cy, eve = map(whole.for_user, ("ada", "bob", "cy", "eve"))
    for name, read in READS.items():
        with case(name):
            expected = read(ada)
            assert expected
            assert expected == read(bob) == read(cy)
            try:
                found = read(eve)
            except (NotFoundError, IndexError):
                continue
            assert not found or name in {"page", "graph"}


def test_a_reader_writes_nothing(whole: Ledger) -> None:
    """Each write is refused in words, and nothing is on the log."""
    bob, position = whole.for_user("bob"), whole.last_position()
    for name, write in WRITES.items():
        with case(name), pytest.raises(AccessDeniedError, match=r"a reader of (chat|thread) 'trip' may not write"):
            write(bob)
    for name, write in OWNERS.items():
        with case(name), pytest.raises(AccessDeniedError, match=r"only the owner of (chat|thread) 'trip'"):
            write(bob)
    assert position == whole.last_position()


def test_a_writer_does_all_but_what_is_the_owners(whole: Ledger) -> None:
    """The actor is the member, and the chat stays the owner's."""
    cy = whole.for_user("cy")
    for name, write in WRITES.items():
        position = whole.last_position()
        with case(name):
            write(cy)
            written = list(whole.history(after=position))
            assert written or name == "live"
            assert {"cy"} >= {recorded.actor for recorded in written}
    position = whole.last_position()
    for name, write in OWNERS.items():
        if name not in {"throw out", "demote"}:  # these are about the writer
            with case(name), pytest.raises(AccessDeniedError, match=r"only the owner of (chat|thread) 'trip'"):
                write(cy)
    with pytest.raises(AccessDeniedError):
        cy.set_member("trip", "cy", "reader")
    assert ("ada", position) == (whole.owner_of("trip"), whole.last_position())
    check_chat(whole, "trip")


def test_strangers_are_told_what_a_chat_that_is_not_there_tells(whole: Ledger) -> None:
    """The same errors as for an id that nothing has, for each write; an id that is taken is refused as such."""
    eve = whole.for_user("eve")
    for name, write in {**WRITES, **OWNERS}.items():
        with case(name):
            try:
                assert not write(eve)
            except (NotFoundError, AlreadyExistsError):
                continue
    with pytest.raises(ChatExistsError):
        eve.create_chat("trip", "eve")
    assert whole.members("trip") == whole.for_user("ada").members("trip")


def test_a_member_may_leave(whole: Ledger) -> None:
    """What the member wrote stays, and the chat is gone for the member."""
    bob, cy = whole.for_user("bob"), whole.for_user("cy")
    cy.append("trip", user("so long", id="m3"))

    assert (True, False) == (bob.remove_member("trip", "bob"), bob.remove_member("trip", "bob"))
    assert (True, None, []) == (cy.remove_member("trip", "cy"), cy.get_chat("trip"), cy.members("trip"))
    assert "m3" in {message.id for message in whole.get_messages("trip")}
    assert [] == whole.members("trip")


def test_lists_have_own_chats_and_those_that_one_is_a_member_of() -> None:
    """In the same order, and page by page; of an owner those that one may read."""
    with chatledger.open("memory:") as ledger:
        for number in range(12):
            owner = ("ada", "bob", "")[number % 3]
            members: dict[str, Any] = {} if number % 2 or owner == "bob" else {"bob": "reader"}
            ledger.create_chat(f"c{number}", owner, metadata={"odd": bool(number % 2), "n": 1}, members=members)
        for number in (3, 6, 1, 0, 4):
            ledger.append(f"c{number}", user("x"))
            time.sleep(0.002)
        bob = ledger.for_user("bob")
        readable = [chat for chat in ledger.list_chats() if chat.user_id == "bob" or ledger.members(chat.id)]
        created = sorted(readable, key=lambda chat: (-chat.created_at, chat.id))

        assert readable == bob.list_chats()
        assert readable[::-1] == bob.list_chats(ascending=True)
        assert created == bob.list_chats(order="created")
        assert len(readable) == bob.count_chats() == 8
        for owner in ("ada", "bob", ""):
            own = [chat for chat in readable if chat.user_id == owner]
            assert own == bob.list_chats(user_id=owner)
            assert len(own) == bob.count_chats(user_id=owner)
        even = [chat for chat in readable if chat.metadata == {"odd": False, "n": 1}]
        assert even == bob.list_chats(metadata={"odd": False, "n": 1})
        for limit in (1, 3):
            for backwards in (False, True):
                found: list[Any] = []
                while page := bob.list_chats(limit=limit, after=found[-1] if found else None, ascending=backwards):
                    found += page
                assert found == (readable[::-1] if backwards else readable)
        assert [] == ledger.for_user("eve").list_chats()


def test_a_list_costs_what_one_may_read() -> None:
    """Not what others have, nor how many members a chat has."""
    costs: list[int] = []
    with chatledger.open("memory:") as ledger:
        for number in range(5):
            ledger.create_chat(f"shared {number}", "ada", members={"bob": "reader"})
        for _ in range(2):
            bob = ledger.for_user("bob")
            with counting() as counts:
                assert 5 == len(bob.list_chats()) == bob.count_chats()
            costs.append(counts.total())
            for number in range(200):
                ledger.create_chat(user_id="ada" if number % 2 else "cy")
            for number in range(50):
                ledger.set_member("shared 1", f"guest {number}", "writer")
    assert costs[0] == costs[1]


words = st.lists(st.sampled_from(["leek", "riga", "tram", "fog"]), min_size=1, max_size=6).map(" ".join)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    chats=st.lists(
        st.tuples(st.sampled_from(["ada", "bob", "eve"]), st.booleans(), st.lists(words, max_size=4)), max_size=8
    ),
    removed=st.sets(st.integers(0, 7)),
)
def test_ranks_are_those_of_the_chats_that_one_may_read(
    chats: list[tuple[str, bool, list[str]]], removed: set[int]
) -> None:
    """Each answer is the one of a ledger that has no other chats: no frequency or length of others' counts (NS-53)."""
    embedding = Words().embedding()
    with chatledger.open("memory:", embed=embedding) as shared, chatledger.open("memory:", embed=embedding) as alone:
        readable: set[str] = set()
        for number, (owner, is_member, said) in enumerate(chats):
            members: dict[str, Any] = {"bob": "reader"} if is_member and owner != "bob" else {}
            shared.create_chat(f"c{number}", owner, members=members)
            drafts = [text(content, f"{number}-{at}") for at, content in enumerate(said)]
            shared.append(f"c{number}", drafts)
            if number in removed:
                shared.remove_member(f"c{number}", "bob")
            if owner == "bob" or (members and number not in removed):
                readable.add(f"c{number}")
                alone.create_chat(f"c{number}", owner)
                alone.append(f"c{number}", drafts)
        for ledger in (shared, alone):
            ledger.embed_pending()
        bob = shared.for_user("bob")

        def hits(ledger: Ledger, **options: Any) -> list[Any]:
            found = ledger.search("leek OR riga", limit=None, **options)
            # Vectors are multiplied many at a time, as floats of 32 bits: which of equally near messages comes first is open.
            is_exact = options.get("mode") != "both"
            return sorted((hit.message.id, round(hit.rank, 5) if is_exact else 0, hit.snippet) for hit in found)

        for options in ({}, {"mode": "meaning"}, {"mode": "both"}, {"user_id": "ada"}, {"user_id": "eve"}):
            assert hits(alone, **options) == hits(bob, **options)
        for chat_id in (f"c{number}" for number in range(len(chats))):
            expected = hits(alone, chat_id=chat_id) if chat_id in readable else []
            assert expected == hits(bob, chat_id=chat_id)


def test_a_feed_follows_who_is_a_member(whole: Ledger) -> None:
    """An open feed shows the chat from the moment on that one joins, and nothing more from the moment on that one leaves."""
    whole.create_chat("hall", "ada")
    whole.append("hall", user("before", id="h1"))
    eve, seen = whole.for_user("eve"), list[tuple[str, str]]()
    with eve.feed() as feed:
        reading = threading.Thread(target=lambda: seen.extend((one.chat_id, one.type) for one in feed))
        reading.start()
        whole.append("hall", user("not yet", id="h2"))
        whole.append("of eve", user("mine", id="h5"))
        _until(lambda: len(seen) == 1)
        whole.set_member("hall", "eve", "reader")
        whole.append("hall", user("hello", id="h3"))
        _until(lambda: ("hall", "message_appended") in seen)
        whole.remove_member("hall", "eve")
        whole.append("hall", user("gossip", id="h4"))
        whole.append("of eve", user("mine too", id="h6"))
        _until(lambda: len(seen) == 4)
        feed.cursor.close_quietly()
        reading.join(10)

    mine = ("of eve", "message_appended")
    assert [mine, ("hall", "member_set"), ("hall", "message_appended"), mine] == seen
    assert {"of eve"} == {recorded.chat_id for recorded in eve.history()}


def test_what_a_feed_has_read_ahead_is_not_given_to_who_was_removed(whole: Ledger) -> None:
    """Who may see an event is asked again when it is given."""
    for number in range(9):
        whole.append("trip", user("gossip", id=f"g{number}"))
    with whole.for_user("bob").feed(0, follow=False) as feed:
        assert "trip" == next(feed).chat_id
        events = whole.for_user("bob").history("trip")
        assert "trip" == next(events).chat_id
        whole.remove_member("trip", "bob")
        assert {"of bob"} == {recorded.chat_id for recorded in feed}
        assert [] == list(events)


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_history_is_what_one_may_read_when_it_is_read(whole: Ledger) -> None:
    """A new member has all of it, as the messages are; to a removed one nothing is left, not even the removal."""
    eve = whole.for_user("eve")
    whole.set_member("trip", "eve", "reader")
    whole.set_member("trip", "eve", "writer")

    assert list(whole.history("trip")) == list(eve.history("trip"))
    assert [one for one in whole.history() if one.chat_id in {"trip", "of eve", "agents:trip"}] == [
        one for one in eve.history() if one.chat_id in {"trip", "of eve", "agents:trip"}
    ]
    assert list(whole.history(user_id="ada")) == list(eve.history(user_id="ada"))

    whole.remove_member("trip", "eve")

    assert [] == list(eve.history("trip")) == list(eve.history(user_id="ada"))
    assert ["of eve"] == sorted({recorded.chat_id for recorded in eve.history()})


def test_the_past_is_open_to_those_who_may_read_now(whole: Ledger) -> None:
    """Who belongs is asked now, and told as it was then."""
    early = whole.last_position()
    whole.set_member("trip", "eve", "reader")
    whole.append("trip", text("later", "m3"))
    eve = whole.for_user("eve")
    with eve.as_of(early) as then:
        assert ["m1", "m2"] == [message.id for message in then.get_messages("trip")]
        assert ["bob", "cy"] == [member.user_id for member in then.members("trip")]
        assert {"trip", "of eve"} == {chat.id for chat in then.list_chats()}
        assert {"m1", "m2", "own eve"} == {hit.message.id for hit in then.search("leeks")}
        assert len(list(then.history())) == len(list(eve.history())) - 2

        whole.remove_member("trip", "eve")

        assert then.get_chat("trip") is None
        assert not [*then.get_chain("m1"), *then.members("trip"), *then.history("trip")]
        assert ["of eve"] == [chat.id for chat in then.list_chats()]
        assert ["own eve"] == [hit.message.id for hit in then.search("leeks")]


def test_a_thread_is_as_open_as_the_chat_with_its_id(whole: Ledger) -> None:
    """Whoever of the members begins it, it is the owner's; and it is listed once."""
    ada, cy, bob, eve = map(whole.for_user, ("ada", "cy", "bob", "eve"))
    whole.create_chat("plan", "ada", members={"cy": "writer", "bob": "reader"})
    put(Threads(eve), "of eve's", "1", {"x": "y"})
    put(Threads(cy), "plan", "1", {"city": "Riga"})
    put(Threads(ada), "plan", "2", {"city": "Tartu"}, parent_id="1")

    assert {"ada"} == {info.owner for info in Threads(whole).infos() if info.thread_id == "plan"}
    for ledger in (ada, cy, bob):
        threads = Threads(ledger)
        assert ["trip", "plan"] == [info.thread_id for info in threads.infos()] == threads.thread_ids()
        for order, ascending, expected in (
            ("updated", False, ["plan", "trip"]),
            ("created", True, ["trip", "plan"]),
        ):
            found, after = list[str](), None
            while True:
                infos, after = threads.ledger.list_threads(limit=1, order=order, ascending=ascending, after=after)  # type: ignore[arg-type]
                found += [info.thread_id for info in infos]
                if after is None:
                    break
            assert expected == found
        assert ["2", "1"] == [one.record.id for one in threads.checkpoints("plan")]
        assert {"trip", "plan"} <= {one.id for one in ledger.export_all()}
    assert ["of eve's"] == [info.thread_id for info in Threads(eve).infos()]
    with pytest.raises(AccessDeniedError):
        put(Threads(bob), "plan", "3", {"city": "no"}, parent_id="2")

    whole.remove_member("plan", "cy")

    assert ["trip"] == [info.thread_id for info in Threads(cy).infos()]
    assert not [*Threads(cy).checkpoints("plan"), *Threads(cy).namespaces("plan")]
    with pytest.raises(AlreadyExistsError):
        put(Threads(cy), "plan", "3", {"city": "no"})


def test_a_thread_of_another_owner_than_its_chats_is_not_shared(whole: Ledger) -> None:
    """Members of the chat see nothing of a thread that happens to have its id."""
    put(Threads(whole.for_user("eve")), "clash", "1", {"secret": "x"})
    whole.create_chat("clash", "ada", members={"bob": "writer"})
    bob = Threads(whole.for_user("bob"))

    assert not [*bob.namespaces("clash"), *(info for info in bob.infos() if info.thread_id == "clash")]
    with pytest.raises(AlreadyExistsError):
        put(bob, "clash", "2", {"x": "y"})


def test_live_streams_end_for_those_who_are_removed(whole: Ledger) -> None:
    """A reader of a live stream sees nothing more, and a writer writes nothing more."""
    ada, bob, cy = map(whole.for_user, ("ada", "bob", "cy"))
    with cy.live("trip", id="answer") as live:
        live.write("one")
        live.flush()
        reader = bob.read_live("trip", "answer")
        assert "one" == next(reader).data
        assert ["answer"] == [stream.id for stream in bob.list_live()]
        whole.remove_member("trip", "bob")
        live.write("two")
        live.flush()
        with pytest.raises(LiveStreamNotFoundError):
            next(reader)
        assert ([], None) == (bob.list_live("trip"), bob.get_live("trip", "answer"))

        whole.set_member("trip", "cy", "reader")
        with pytest.raises(AccessDeniedError):
            _write_until_refused(live.write)
        with pytest.raises(AccessDeniedError):
            live.commit(assistant("mine"))
    with ada.live("trip", id="mine") as live:
        live.write("three")
        live.flush()
        found = cy.get_live("trip", "mine")
        assert found is not None
    found = cy.get_live("trip", "mine")
    assert found is not None
    with pytest.raises(AccessDeniedError):
        cy.take_over_live(found)
    cy.sweep()
    ada.take_over_live(found).discard()


def _write_until_refused(write: Callable[[str], None]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        write("more")
        time.sleep(0.01)


def test_a_deleted_chat_takes_its_members_with_it(whole: Ledger) -> None:
    """No row is left, no name is on the log, and a chat of the same id begins without them. Members see the tombstone."""
    bob, eve = whole.for_user("bob"), whole.for_user("eve")
    whole.for_user("ada").delete_chat("trip")

    assert [("trip", "chat_deleted")] == [(one.chat_id, one.type) for one in bob.history("trip")]
    assert [] == list(eve.history("trip"))
    assert [] == whole.members("trip") == bob.members("trip")
    assert ["of bob"] == [chat.id for chat in bob.list_chats()]
    tombstone = next(iter(whole.history("trip")))
    assert not [name for name in ("ada", "bob", "cy") if f"'{name}'" in repr(tombstone.body)]
    with store_of(whole).snapshot() as snapshot:
        rows = [bytes(key) for key, _ in snapshot.txn.cursor(snapshot.tables.rows)]
        order = [bytes(value) for _, value in snapshot.txn.cursor(snapshot.tables.order)]
        numbers = {int.from_bytes(value[:8], "big") for value in order}
        living = set(snapshot.chat_nos())
        assert [] == [key for key in rows if key[8:9] == Tag.MEMBER]
        assert numbers == living
    whole.create_chat("trip", "eve")
    assert bob.get_chat("trip") is None
    whole.verify()


def test_a_rebuild_changes_no_answer(whole: Ledger) -> None:
    """The index equals a fold of the log, members included."""
    whole.set_member("trip", "eve", "reader")
    whole.set_member("trip", "eve", "writer")
    whole.remove_member("trip", "bob")
    before = [whole.members("trip"), *(whole.for_user(name).list_chats() for name in ("ada", "bob", "cy", "eve"))]
    with store_of(whole).snapshot() as snapshot:
        chat_no = snapshot.chat("trip").chat_no or 0
        rows = list(prefixed(snapshot.txn, snapshot.tables.rows, chat_key(chat_no, Tag.MEMBER)))
    whole.rebuild()

    assert before == [whole.members("trip"), *(whole.for_user(n).list_chats() for n in ("ada", "bob", "cy", "eve"))]
    assert 2 == len(rows)
    check_chat(whole, "trip")
    whole.verify()


def test_members_travel_with_the_whole_ledger(whole: Ledger) -> None:
    """An export has them, and a ledger of everybody takes them in with a new chat; a user is sent nobody by a file."""
    exported = whole.export_chat("trip")
    assert {"bob": "reader", "cy": "writer"} == exported.members
    with chatledger.open("memory:") as other:
        other.import_chat(exported)
        assert [("bob", "reader"), ("cy", "writer")] == [(one.user_id, one.role) for one in other.members("trip")]
        other.remove_member("trip", "bob")
        position = other.last_position()
        other.import_chat(exported)
        assert position == other.last_position()  # an old export brings nobody back
        other.import_chat(exported, chat_id="copy")
        assert [] == other.members("copy")
        other.verify()
    with chatledger.open("memory:") as other:
        other.for_user("ada").import_chat(exported)
        assert [] == other.members("trip")
        with pytest.raises(AccessDeniedError):
            other.for_user("bob").import_chat(whole.for_user("bob").export_chat("trip"), chat_id="mine")


def test_a_chat_with_many_members_is_imported_at_once() -> None:
    """As many as a chat may have, and branches besides."""
    with chatledger.open("memory:") as ledger, chatledger.open("memory:") as other:
        ledger.create_chat("c", "ada", members={f"u{n}": "reader" for n in range(500)})
        ledger.append("c", text("x", "m1"))
        for number in range(5):
            ledger.create_branch("c", f"b{number}", "m1")
        other.import_chat(ledger.export_chat("c"))
        assert 500 == len(other.members("c"))
        assert 6 == len(other.list_branches("c"))
        with pytest.raises(InvalidValueError, match="at most 500"):
            other.set_member("c", "one more", "reader")


def test_forks_are_their_makers(whole: Ledger) -> None:
    """Also a reader may take a copy, which has no members."""
    bob = whole.for_user("bob")
    made = bob.fork_chat("trip", "m1")

    assert ("bob", []) == (made.user_id, whole.members(made.id))
    assert [made] == bob.forks("trip")
    assert [] == whole.for_user("ada").forks("trip") == whole.for_user("cy").forks("trip")


def test_engines_of_members(whole: Ledger) -> None:
    """A writer's engine goes on with the chat of its owner; one of a reader or a stranger is refused."""
    cy = whole.for_user("cy")
    for ledger, name in ((cy, "cy"), (whole, "cy"), (whole, "ada")):
        engine = ContextEngine(ledger, "trip", name).set(user(f"hello from {name}"))
        engine.save()
    assert 5 == len(whole.get_messages("trip"))
    for ledger, name in (
        (whole.for_user("bob"), "bob"),
        (whole, "bob"),
        (whole, "eve"),
        (whole.for_user("eve"), "eve"),
    ):
        with case(name), pytest.raises(OwnerMismatchError):
            ContextEngine(ledger, "trip", name).set(user("no")).save()


def test_what_an_application_grants(whole: Ledger) -> None:
    """For who keeps elsewhere who belongs to a chat: where it is named, and besides what the chat says."""
    reader, writer = (whole.for_user("eve", grants={"trip": role}) for role in ("reader", "writer"))
    for name, read in READS.items():
        if "by owner" not in name:
            with case(name):
                assert read(whole.for_user("ada")) == read(reader)
    for name, write in WRITES.items():
        with case(name), pytest.raises(AccessDeniedError):
            write(reader)
    writer.append("trip", user("granted", id="m3"))
    with pytest.raises(AccessDeniedError, match="only the owner"):
        writer.set_member("trip", "eve", "writer")
    assert (False, ["of eve"]) == (writer.remove_member("trip", "eve"), [chat.id for chat in writer.list_chats()])
    assert ["own eve"] == [hit.message.id for hit in writer.search("leeks")]
    put(Threads(writer), "trip", "3", {"city": "Riga"})
    assert {"ada"} == {info.owner for info in Threads(whole).infos() if info.thread_id == "trip"}
    # It never takes away what the chat gives, and nobody grants themselves more.
    whole.for_user("cy", grants={"trip": "reader"}).append("trip", user("still a writer"))
    with pytest.raises(AccessDeniedError):
        whole.for_user("eve").for_user("eve", grants={"trip": "reader"})
    assert reader.for_user("eve").get_chat("trip") is not None
    with pytest.raises(InvalidValueError):
        whole.for_user("eve", grants={"trip": "owner"})  # type: ignore[dict-item]
    whole.delete_chat("trip")
    assert writer.get_chat("trip") is None


def test_nothing_is_swept_by_a_member(whole: Ledger) -> None:
    """A chat that has ended is its owner's to delete, or everybody's."""
    whole.update_chat("trip", expires_at=1)

    assert [] == whole.for_user("cy").due_chats() == whole.for_user("cy").sweep().chats
    assert ["trip"] == whole.for_user("ada").due_chats() == whole.for_user("ada").sweep().chats


def test_members_awaited() -> None:
    """The same by `AsyncLedger`."""

    async def check() -> None:
        async with chatledger.open_async("memory:") as whole:
            ada, bob, eve = whole.for_user("ada"), whole.for_user("bob"), whole.for_user("eve", grants={"t": "reader"})
            await ada.create_chat("t", "ada")
            await ada.append("t", user("hello"))
            with pytest.raises(ChatNotFoundError):
                await bob.append("t", user("no"))
            member = await ada.set_member("t", "bob", "reader")
            assert [member] == await bob.members("t")
            with pytest.raises(AccessDeniedError):
                await bob.append("t", user("no"))
            await ada.set_member("t", "bob", "writer")
            await bob.append("t", user("yes"))
            assert 2 == len(await eve.get_messages("t")) == len(await bob.get_messages("t"))
            async with bob.as_of(await whole.get_position()) as then:
                assert ["bob"] == [one.user_id for one in await then.members("t")]
            assert await bob.remove_member("t", "bob")
            assert [] == await bob.list_chats()
            with pytest.raises(AccessDeniedError):
                bob.for_user("bob", grants={"t": "reader"})

    anyio.run(check)
