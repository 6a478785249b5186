"""`for_user`, case by case: what is refused, what is shared with the whole ledger, and what works on top of it."""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.contracts.store_world import anything
from tests.infra.ledger import test_access, test_runs_machine
from tests.support.access_world import Call, outcome
from tests.support.agent_threads import put

import chatledger
from chatledger import (
    AccessDeniedError,
    AsyncContextEngine,
    AsyncLedger,
    ContextEngine,
    HeadConflictError,
    InvalidValueError,
    Ledger,
    LedgerClosedError,
    NewMessage,
    Recorded,
    assistant,
    user,
)
from chatledger.errors import (
    AlreadyExistsError,
    ChatExistsError,
    ChatNotFoundError,
    MessageConflictError,
    MessageNotFoundError,
    NotFoundError,
    OwnerMismatchError,
)
from chatledger.graph_state import StateStore, state_id
from chatledger.infra.ledger.threads import Threads


def text(content: str, message_id: str) -> NewMessage:
    return NewMessage("user", content, id=message_id)


def kinds(events: Iterable[Recorded]) -> list[tuple[str, str]]:
    return [(recorded.chat_id, recorded.type) for recorded in events]


@pytest.fixture
def whole() -> Iterator[Ledger]:
    """Ada has a chat, Bob none."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada", title="Riga")
        ledger.append("trip", [text("leeks", "m1"), text("more leeks", "m2")])
        yield ledger


# What is refused


@pytest.mark.parametrize("user_id", [None, 5, b"ada", "x" * 2049, "\0"], ids=["none", "int", "bytes", "long", "nul"])
def test_a_user_is_needed(whole: Ledger, user_id: Any) -> None:
    """There is no ledger for nobody (GS-22)."""
    with pytest.raises(InvalidValueError):
        whole.for_user(user_id)


def test_the_empty_user_is_one_like_any_other(whole: Ledger) -> None:
    """It is not everybody."""
    whole.create_chat("own", "")

    assert ["own"] == [chat.id for chat in whole.for_user("").list_chats()]


def test_one_user_does_not_become_another(whole: Ledger) -> None:
    """A limited ledger gives another one for the same user only."""
    ada = whole.for_user("ada")

    assert ada.for_user("ada").get_chat("trip") == whole.get_chat("trip")
    for other in ["bob", ""]:
        with pytest.raises(AccessDeniedError):
            ada.for_user(other)


def test_what_concerns_everybody_is_refused(whole: Ledger) -> None:
    """Each is refused by its name, and nothing is reached around it."""
    bob = whole.for_user("bob")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("rebuild", bob.rebuild),
        ("rebuild", lambda: bob.rebuild(only="search")),
        ("verify", bob.verify),
        ("anchor", lambda: bob.anchor("never-read")),
        ("projections", bob.projections),
        ("projections", lambda: bob.drop_projection("name")),
        ("projections", lambda: bob.projection("name").__enter__()),
        ("backup", lambda: bob.backup("never-made")),
        ("erase_user", lambda: bob.erase_user("bob")),
        ("export_user", lambda: bob.export_user("bob")),
        ("forget_backup", lambda: bob.forget_backup("backup")),
        ("hold", lambda: bob.hold("chat", "trip")),
        ("release", lambda: bob.release("chat", "trip")),
        ("holds", bob.holds),
        ("set_retention", lambda: bob.set_retention("all", keep_days=1)),
        ("remove_retention", lambda: bob.remove_retention("all")),
        ("retention", bob.retention),
        ("add_remote", lambda: bob.add_remote("office", "./office")),
        ("remove_remote", lambda: bob.remove_remote("office")),
        ("remotes", bob.remotes),
    ]
    for name, refused in calls:
        with pytest.raises(
            AccessDeniedError, match=f"^{name} covers the chats of all users, and this ledger is limited to one;"
        ):
            refused()
    for name in ("index", "projector", "rebuild", "close"):
        assert not hasattr(anything(bob)._store, name)
    for name in ("append", "erase", "close"):
        assert not hasattr(anything(bob)._store.log, name)


def test_every_method_was_thought_about() -> None:
    """A new method of `Ledger` belongs into the properties of `test_access`, if it shows or changes chats, or is refused."""
    refused = {"rebuild", "verify", "anchor", "backup", "projection", "projections", "drop_projection"}
    refused |= {
        "erase_user",
        "export_user",
        "forget_backup",
        "hold",
        "release",
        "holds",
        "set_retention",
        "remove_retention",
        "retention",
        "add_remote",
        "remove_remote",
        "remotes",
        "remote",
    }
    of_nobody = {
        *["close", "context", "for_user", "get_position", "last_position", "location", "position", "sync", "wait"]
    }
    tested_here = {"as_of", "feed", "feeds", "ack_feed", "forget_feed", "set_active_branch"}
    tested_here |= {"export_all", "export_thread", "export_state", "import_value"}
    tested_in_fork_chat = {"forks"}
    tested_with_members = {"check_may_write", "set_members"}
    tested_with_links = {"create_link", "revoke_link", "links", "get_link"}
    tested_in_redactions = {"redact", "redact_words"}
    tested_in_erasures = {"erasures", "wait_erased"}
    tested_in_proofs = {"prove_growth", "still_valid"}
    tested_in_bundles = {"bundle", "import_bundle"}
    tested_in_pulls = {"pull", "push"}
    tested_in_merges = {"merge"}
    tested_in_replays = {"replay", "compare", "bisect"}
    tested_with_threads = {"list_threads", "count_threads"}
    tested_in_meaning = {"embed_pending"}
    tested_in_searching = {"count_hits"}
    tested_in_live = {"live", "read_live", "get_live", "list_live", "take_over_live"}
    source = Path(test_access.__file__).read_text(encoding="utf-8")
    compared = {name for name in dir(Ledger) if f"ledger.{name}(" in source or f"Ledger.{name}," in source}
    of_runs = Path(test_runs_machine.__file__).read_text(
        encoding="utf-8"
    )  # two users, each against a ledger of their own
    compared |= {name for name in dir(Ledger) if name in of_runs}

    public = {name for name in dir(Ledger) if not name.startswith("_")}
    tested = (
        tested_here
        | tested_in_fork_chat
        | tested_in_erasures
        | tested_in_redactions
        | tested_with_links
        | tested_in_proofs
        | tested_in_bundles
        | tested_in_pulls
        | tested_in_merges
        | tested_in_replays
        | tested_with_threads
        | tested_in_meaning
        | tested_in_searching
        | tested_in_live
        | tested_with_members
        | compared
    )
    assert public - refused - of_nobody - tested == set()


def test_threads_and_states_of_others_do_not_travel(whole: Ledger) -> None:
    """Neither are they exported, nor does an import lay anything over them."""
    ada, bob = whole.for_user("ada"), whole.for_user("bob")
    put(Threads(ada), "plan", "1", {"city": "Riga"})
    StateStore(ada).put(state_id("ada", "talk"), {"city": "Riga"})
    thread, state = ada.export_thread("plan"), ada.export_state(state_id("ada", "talk"))

    assert [type(one) for one in bob.export_all()] == []
    with pytest.raises(NotFoundError):
        bob.export_thread("plan")
    with pytest.raises((NotFoundError, AccessDeniedError)):
        bob.export_state(state_id("ada", "talk"))
    with pytest.raises((AccessDeniedError, AlreadyExistsError)):
        bob.import_value(thread)
    with pytest.raises((AccessDeniedError, AlreadyExistsError)):
        bob.import_value(msgspec.structs.replace(thread, owner="bob"))
    with pytest.raises((AccessDeniedError, AlreadyExistsError)):
        bob.import_value(state)
    assert (ada.export_thread("plan"), ada.export_state(state_id("ada", "talk"))) == (thread, state)


def test_no_error_names_a_user(whole: Ledger) -> None:
    """Neither one's own nor another's (GS-20)."""
    bob = whole.for_user("bob")
    calls: list[Call] = [
        lambda ledger: ledger.create_chat("trip", "bob"),
        lambda ledger: ledger.create_chat("own", "ada"),
        lambda ledger: ledger.for_user("ada"),
        lambda ledger: ledger.rebuild(),
        lambda ledger: ledger.get_messages("trip"),
    ]
    for call in calls:
        kind, message, *_ = outcome(bob, call)

        assert kind != "ok"
        assert "ada" not in message
        assert "bob" not in message


def test_nothing_of_another_can_be_changed(whole: Ledger) -> None:
    """Every write on the chat of another user fails as on one that does not exist, and writes nothing (GS-23)."""
    before, bob = whole.last_position(), whole.for_user("bob")
    writes: list[Callable[[str], object]] = [
        lambda chat: bob.append(chat, [user("hello")]),
        lambda chat: bob.add_messages(chat, [user("hello")]),
        lambda chat: bob.update_chat(chat, title="mine"),
        lambda chat: bob.update_chat(chat, updater=lambda _: {"title": "mine"}),
        lambda chat: bob.create_branch(chat, "side", "m1"),
        lambda chat: bob.fork(chat, "m1"),
        lambda chat: bob.merge(chat, "main-v2", summary="mine"),
        lambda chat: bob.move_head(chat, "main", "m1", expected=chatledger.ANY),
        lambda chat: bob.set_active_branch(chat, "main"),
        lambda chat: bob.set_checkpoint(chat, "here", "m1"),
    ]
    for write in writes:
        with pytest.raises(ChatNotFoundError) as of_ada:
            write("trip")
        with pytest.raises(ChatNotFoundError) as of_nobody:
            write("nothing")
        assert str(of_nobody.value).replace("nothing", "trip") == str(of_ada.value)

    assert bob.delete_chat("trip") is False
    assert bob.delete_chat("trip", user_id="ada") is False
    assert bob.delete_checkpoint("trip", "here") is False
    assert before == whole.last_position()


# Ids that are taken


def test_a_taken_chat_id_is_refused_like_an_own_one(whole: Ledger) -> None:
    """Neither `create_chat` nor `upsert_chat` gives anything of the other's chat away but that the id is taken."""
    bob = whole.for_user("bob")
    bob.create_chat("own", "bob")
    with pytest.raises(ChatExistsError) as own:
        bob.create_chat("own", "bob")
    with pytest.raises(ChatExistsError) as taken:
        bob.create_chat("trip", "bob")
    assert str(own.value).replace("own", "trip") == str(taken.value)
    with pytest.raises(OwnerMismatchError, match=r"chat 'trip' belongs to another user$"):
        bob.upsert_chat("trip", "bob")
    with pytest.raises(ChatExistsError):
        bob.import_chat(msgspec.structs.replace(whole.export_chat("trip"), user_id="bob"))
    with pytest.raises(AccessDeniedError):
        bob.import_chat(whole.export_chat("trip"))


def test_what_is_wrong_anyway_comes_before_a_taken_id(whole: Ledger) -> None:
    """A call that would be refused without the others is refused in the same words with them."""
    bob = whole.for_user("bob")
    with pytest.raises(InvalidValueError):
        bob.create_chat("trip", "bob", title=anything(5))
    bob.create_chat("own", "bob")
    with pytest.raises(HeadConflictError):
        bob.append("own", [text("mine", "m1")], expected_head="m9")
    with pytest.raises(MessageNotFoundError):
        bob.append("own", [text("mine", "m1"), NewMessage("user", "x", reply_to="m2")])
    with pytest.raises(MessageNotFoundError):
        bob.fork("own", "m1")
    with pytest.raises(MessageConflictError):
        bob.append("own", [text("mine", "m1")])

    assert [] == bob.get_messages("own")
    assert ["leeks", "more leeks"] == [message.text for message in whole.get_messages("trip")]


def test_a_command_id_of_another_means_nothing(whole: Ledger) -> None:
    """Under the command id of another user, their command is neither repeated nor its answer given."""
    ada, bob = whole.for_user("ada"), whole.for_user("bob")
    with whole.context(command_id="command"):
        ada.create_chat("secret", "ada", title="Leeks")
        with pytest.raises(ChatExistsError):
            bob.create_chat("secret", "bob")
    with whole.context(command_id="end"):
        assert ada.delete_chat("secret")
        assert bob.delete_chat("secret") is False
        assert bob.create_chat("secret", "bob").title is None

    with whole.context(command_id="end"):
        assert ada.delete_chat("secret"), "repeated after its answer was lost"
    assert bob.get_chat("secret") is not None


# History


def _lives(ledger: Ledger) -> None:
    """One chat id with three owners one after the other, and one chat beside it."""
    for owner in ("ada", "bob"):
        ledger.create_chat("shared", owner)
        ledger.append("shared", [user("hello")])
        ledger.create_chat(f"of {owner}", owner)
        ledger.append("shared", [user("good bye")])
        ledger.delete_chat("shared")
    ledger.create_chat("shared", "ada")
    ledger.append("shared", [user("again")])


EXPECTED = {
    "ada": [
        ("of ada", "chat_created"),
        ("shared", "chat_deleted"),
        ("shared", "chat_created"),
        ("shared", "message_appended"),
    ],
    "bob": [("of bob", "chat_created"), ("shared", "chat_deleted")],
    "eve": [],
}


@pytest.mark.parametrize("place", ["memory:", "sqlite"])
@pytest.mark.parametrize("owner", EXPECTED)
def test_tombstones_belong_to_their_owner(place: str, owner: str, tmp_path: Path) -> None:
    """From whatever position it is read, a history has what an owner's chats have, also where an id changed hands."""
    location = place if place == "memory:" else f"sqlite:///{tmp_path / 'log.db'}"
    with chatledger.open(location) as ledger:
        _lives(ledger)
        view = ledger.for_user(owner)
        everything = [event for event in view.history() if event.chat_id != "trip"]

        assert EXPECTED[owner] == kinds(everything)
        for after in range(ledger.last_position() + 1):
            expected = [event for event in everything if event.position > after]
            assert expected == list(view.history(after=after))
            assert expected == list(ledger.history(after=after, user_id=owner))
            assert expected == list(view.feed(after, follow=False))
            of_shared = [event for event in expected if event.chat_id == "shared"]
            assert of_shared == list(view.history("shared", after=after))


def test_an_old_tombstone_is_nobodys(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tombstones that were written before they could tell are shown to nobody who did not see the chat."""

    def nothing(*_: str) -> None:
        """Name nobody, as earlier versions did."""

    monkeypatch.setattr("chatledger.domain.chat.decide_chats.owner_digest", nothing)
    _lives(ledger)

    assert [] == [event for event in ledger.for_user("bob").history() if event.chat_id == "shared"]
    assert 2 == sum(event.type == "chat_deleted" for event in ledger.history())


def test_the_tombstones_survive_a_rebuild(ledger: Ledger) -> None:
    """Whose they were is on the log."""
    _lives(ledger)
    ledger.rebuild()

    assert {owner: kinds(ledger.for_user(owner).history()) for owner in EXPECTED} == EXPECTED
    with ledger.context(command_id="end"):
        ledger.for_user("ada").delete_chat("shared")
    ledger.rebuild()
    with ledger.context(command_id="end"):
        assert ledger.for_user("bob").delete_chat("shared") is False
        assert ledger.for_user("ada").delete_chat("shared") is True


def test_a_live_feed_gives_ones_own(whole: Ledger) -> None:
    """What others write while it waits does not come."""
    bob, seen = whole.for_user("bob"), list[Recorded]()

    def follow() -> None:
        for recorded in bob.feed(0):
            seen.append(recorded)
            if recorded.type == "chat_deleted":
                return

    follower = threading.Thread(target=follow)
    follower.start()
    for owner in ("ada", "bob"):
        whole.create_chat(f"of {owner}", owner)
        whole.append(f"of {owner}", [user("hello")])
        whole.delete_chat(f"of {owner}")
    follower.join(30)

    assert not follower.is_alive()
    assert {"of bob"} == {recorded.chat_id for recorded in seen}


def test_named_feeds_are_ones_own(whole: Ledger) -> None:
    """Users who give their feeds one name do not meet, and each goes on where they were."""
    ada, bob = whole.for_user("ada"), whole.for_user("bob")
    bob.create_chat("own", "bob")
    assert ["chat_created", "message_appended"] == [event.type for event in ada.feed(name="indexer", follow=False)]
    bob.append("own", [user("hello")])
    assert ["own", "own"] == [event.chat_id for event in bob.feed(name="indexer", follow=False)]

    ada.append("trip", [user("hello")])
    assert ["trip"] == [event.chat_id for event in ada.feed(name="indexer", follow=False)]
    assert ["indexer"] == [feed.name for feed in ada.feeds()] == [feed.name for feed in bob.feeds()]
    (of_bob,) = bob.feeds()
    assert ada.ack_feed("indexer", whole.position).position > of_bob.position
    assert [of_bob.position] == [feed.position for feed in bob.feeds()]
    assert ada.forget_feed("indexer")
    assert [] == ada.feeds()
    with pytest.raises(NotFoundError):
        ada.ack_feed("indexer", 1)
    assert ["indexer"] == [feed.name for feed in bob.feeds()]


def test_pages_of_a_log_are_ones_own(whole: Ledger) -> None:
    """What reads the log page by page gets the same."""
    whole.create_chat("own", "bob")
    store = anything(whole.for_user("bob"))._store
    (event,) = whole.history("own")

    assert [event] == list(store.page(0)) == store.log.read(0) == list(store.page(0, stream_id="own"))
    assert [] == list(store.page(event.position)) == store.log.read(event.position)
    assert [] == list(store.page(0, stream_id="trip"))
    assert (None, event) == (store.log.event_at(1), store.log.event_at(event.position))
    assert whole.last_position() == store.log.last_position()


def test_pages_of_a_list_do_not_depend_on_others(whole: Ledger) -> None:
    """A page goes on after a chat that is somebody else's as after one that never was, also where ids agree in 400 bytes."""
    long = "x" * 500
    whole.create_chat(f"{long}1", "bob")
    whole.create_chat(f"{long}0", "ada")
    whole.create_chat(f"{long}2", "bob")
    bob = whole.for_user("bob")
    theirs = whole.get_chat(f"{long}0")
    nobodys = chatledger.Chat(id=f"{long}9", user_id="bob", created_at=0, updated_at=theirs.updated_at if theirs else 0)

    assert theirs is not None
    assert bob.list_chats(after=nobodys) == bob.list_chats(after=theirs)


# Closing


def test_closing_a_view_leaves_the_ledger_open(whole: Ledger) -> None:
    """And closing the ledger ends its views."""
    with whole.for_user("ada") as ada:
        assert ada.get_chat("trip")
    with pytest.raises(LedgerClosedError):
        ada.get_chat("trip")
    assert whole.get_chat("trip")

    other = whole.for_user("ada")
    history = other.history()
    next(history)
    whole.close()
    with pytest.raises(LedgerClosedError):
        other.get_chat("trip")
    with pytest.raises(LedgerClosedError):
        list(history)


# Engines


def test_an_engine_works_for_its_user(whole: Ledger) -> None:
    """A context engine on a limited ledger saves, edits and reads back; nobody else can open its chat."""
    bob = whole.for_user("bob")
    engine = ContextEngine(bob, "talk", "bob").set(user("hello", id="q"), assistant("hi", id="a"))
    engine.save()
    engine.set(user("hello again", id="q")).save()

    assert "main-v2" == engine.branch
    assert ["hello again"] == [message.text for message in bob.get_messages("talk")]
    with pytest.raises(OwnerMismatchError):
        ContextEngine(whole.for_user("ada"), "talk", "ada").set(user("mine")).save()
    with pytest.raises(AccessDeniedError):
        ContextEngine(bob, "new", "ada").set(user("mine")).save()
    with pytest.raises(OwnerMismatchError):
        ContextEngine(bob, "talk", "ada").set(user("mine")).save()
    assert whole.get_chat("new") is None


@pytest.mark.anyio
async def test_asynchronously(async_ledger: AsyncLedger) -> None:
    """An `AsyncLedger` is limited alike, and so is an engine on it."""
    ada, bob = async_ledger.for_user("ada"), async_ledger.for_user("bob")
    await ada.create_chat("trip", "ada")
    (message,) = await ada.append("trip", [user("leeks")])

    assert await bob.get_chat("trip") is None
    assert await bob.get_message(message.id) is None
    assert [] == await bob.list_chats()
    assert [] == [event async for event in bob.history()]
    assert [] == [event async for event in bob.feed(0, follow=False)]
    assert 2 == len([event async for event in ada.feed(0, follow=False)])
    assert ["trip"] == await ada.run(lambda ledger: [chat.id for chat in ledger.list_chats()])
    with pytest.raises(OwnerMismatchError):
        await bob.upsert_chat("trip", "bob")
    with pytest.raises(AccessDeniedError):
        bob.for_user("ada")
    with pytest.raises(InvalidValueError):
        async_ledger.for_user(anything(None))

    engine = AsyncContextEngine(bob.for_user("bob"), "talk", "bob").set(user("hello"))
    await engine.save()
    assert ["talk"] == [chat.id for chat in await bob.list_chats()]

    await bob.close()
    with pytest.raises(LedgerClosedError):
        await bob.get_chat("talk")
    assert await async_ledger.get_chat("talk")
    still = async_ledger.for_user("ada")
    seen = list[Recorded]()

    async def follow() -> None:
        async for recorded in still.feed(0):
            seen.append(recorded)
            if len(seen) == 2:
                await async_ledger.close()

    with anyio.fail_after(30):
        await follow()
    with pytest.raises(LedgerClosedError):
        await still.get_chat("trip")
