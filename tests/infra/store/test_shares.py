"""A ledger that holds a share of the chats: what it shows, what it says of the rest, and writing from everywhere."""

import contextlib
import tempfile
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.agent_threads import put
from tests.support.jetstream_world import TOKEN, Server, eventually, new_name, running
from tests.support.ledger_world import check_chat, text, texts
from tests.support.soak import examples

import chatledger
from chatledger import (
    ANY,
    AccessDeniedError,
    AlreadyExistsError,
    ChainIntegrityError,
    ConfigurationError,
    HeadConflictError,
    Ledger,
    LogUnavailableError,
    NewMessage,
    NotFoundError,
    user,
)
from chatledger.domain.log.shares import BUCKETS, Share, bucket_of, check_share
from chatledger.errors import (
    ChatExistsError,
    ChatNotFoundError,
    HeldError,
    OtherShareError,
    OwnerMismatchError,
)
from chatledger.graph_state import StateStore, state_id
from chatledger.importers import ImportedBranch, ImportedChat, ImportedMessage, import_chats
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.log.nats.subjects import ANY_PLACE, bucket_at, place_of, places_in
from chatledger.infra.store.erasure import LiveEraser
from chatledger.infra.store.store import Store

COUNTS = [count for count in range(2, BUCKETS + 1) if BUCKETS % count == 0]
ADA, BOB, CYD = (
    next(f"{name}{n}" for n in range(99) if bucket_of(f"{name}{n}") % 3 == share)
    for share, name in enumerate(("ada", "bob", "cyd"))
)
"""Users of the shares 0, 1 and 2 of three."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


def place(server: Server, stream: str) -> str:
    return server.url.replace("nats://", f"nats://{TOKEN}@") + f"/{stream}"


@contextlib.contextmanager
def shares(server: Server, base: Path, count: int = 3) -> Generator[tuple[str, list[Ledger]]]:
    """A new stream, and one ledger for each share."""
    location = place(server, new_name())
    with contextlib.ExitStack() as opened:
        chatledger.open(location, create=True, share=(0, count), index=base / "0").close()
        yield (
            location,
            [
                opened.enter_context(chatledger.open(location, share=(number, count), index=base / str(number)))
                for number in range(count)
            ],
        )


def test_chats_of_another_ledger_come_to_who_has_all(server: Server, tmp_path: Path) -> None:
    """A share does not see which chats the others have, so a pull would write again, beside the others, what is there."""
    with shares(server, tmp_path) as (location, nodes), chatledger.open("memory:") as laptop:
        laptop.create_chat("trip", "ada")
        laptop.append("trip", [user("Riga")])
        bundle = tmp_path / "trip.clb"
        laptop.bundle(["trip"], bundle)
        for attempt in (
            lambda: nodes[0].pull(laptop, name="laptop"),
            lambda: laptop.push(nodes[0], name="laptop"),
            lambda: nodes[0].import_bundle(bundle),
        ):
            with pytest.raises(
                AccessDeniedError, match=r"this ledger holds share 0/3\. Open the ledger without share="
            ):
                attempt()
        with BytesIO(bundle.read_bytes()) as stream, pytest.raises(AccessDeniedError, match="holds share 0/3"):
            nodes[0]._take_in(stream)  # pyright: ignore[reportPrivateUsage] - what a server does with a push
        assert nodes[0].position == 0
        with chatledger.open(location, index=tmp_path / "whole") as whole:
            assert [chat.outcome for chat in whole.pull(laptop, name="laptop").chats] == ["new"]
        assert nodes[bucket_of("ada") % 3].sync()
        assert [message.text for message in nodes[bucket_of("ada") % 3].get_messages("trip")] == ["Riga"]


@settings(max_examples=examples(50))
@given(user_id=st.text(), count=st.sampled_from(COUNTS))
def test_a_share_of_each_user(user_id: str, count: int) -> None:
    """Each user is in one share of any number of them, and the filter of that share alone takes in the user's place."""
    bucket = bucket_of(user_id)
    place = place_of(bucket).split(".")

    assert bucket_at(".".join(place)) == bucket
    taking = [
        number
        for number in range(count)
        if all(
            want in {"*", token} for want, token in zip(places_in(Share(number, count)).split("."), place, strict=True)
        )
    ]
    assert taking == [number for number in range(count) if Share(number, count).holds(bucket)] == [bucket % count]


def test_the_buckets_stay() -> None:
    """They are in the subjects of stored events."""
    assert [bucket_of(user) for user in ("", "ada", "bob", "ü")] == [36, 11, 22, 15]
    assert place_of(12) == "0.0.0.2"
    assert places_in(Share(1, 3)) == "*.*.1.*"
    assert places_in(Share(5, 12)) == "1.0.2.*"
    assert places_in(Share(0, 1)) == ANY_PLACE


@pytest.mark.parametrize("share", [(3, 3), (-1, 3), (0, 7), (0, 0), (0,), 3, "0/3", (0, 3.0), (True, 3)])
def test_no_such_share(share: object, tmp_path: Path) -> None:
    """What is no share of those that can be is refused before anything is made."""
    with pytest.raises(ConfigurationError, match=r"share must be \(index, count\)"):
        check_share(share)
    with pytest.raises(ConfigurationError, match="for nats://"):
        chatledger.open(tmp_path / "data", share=(0, 3))
    assert not (tmp_path / "data").exists()


def test_each_shows_its_share(server: Server, tmp_path: Path) -> None:
    """Lists, counts and searches of a user are whole in one share; the others say which one that is."""
    with shares(server, tmp_path) as (_, nodes):
        for number, user in enumerate([ADA, BOB, CYD, ADA]):
            nodes[0].create_chat(f"chat-{number}", user)
            nodes[number % 2].append(f"chat-{number}", [text(f"hello {number}")])
        for node in nodes:
            node.sync()

        assert [["chat-3", "chat-0"], ["chat-1"], ["chat-2"]] == [
            [one.id for one in node.list_chats()] for node in nodes
        ]
        assert [2, 1, 1] == [len(node.search("hello")) for node in nodes]
        assert 2 == nodes[0].count_chats(user_id=ADA) == len(nodes[0].search("hello", user_id=ADA))
        for ask in (
            lambda: nodes[1].get_chat("chat-0"),
            lambda: nodes[1].get_messages("chat-0"),
            lambda: nodes[1].list_chats(user_id=ADA),
            lambda: nodes[1].search("hello", user_id=ADA),
            lambda: nodes[1].search("hello", chat_id="chat-0"),
            lambda: nodes[1].fork_chat("chat-0", "m"),
        ):
            with pytest.raises(OtherShareError, match=r"share 0 of 3") as caught:
                ask()
            assert caught.value.share == (0, 3)
        assert nodes[1].get_chat("no-such-chat") is None
        for number, node in enumerate(nodes):
            assert node.verify().chat_count == len(node.list_chats())
            for chat in node.list_chats():
                check_chat(node, chat.id)
            assert {"chat-0": 0, "chat-1": 1, "chat-2": 2, "chat-3": 0}[node.list_chats()[0].id] == number


def test_a_user_finds_out_nothing_of_others(server: Server, tmp_path: Path) -> None:
    """For one user's ledger a chat of another share is not there where the user's own are, and is elsewhere where they are not."""
    with shares(server, tmp_path) as (_, nodes):
        nodes[0].create_chat("of-bob", BOB)
        nodes[0].create_chat("of-ada", ADA)
        nodes[1].sync()

        assert nodes[0].for_user(ADA).get_chat("of-bob") is None
        assert nodes[0].for_user(ADA).get_chat("nobody's") is None
        answers: set[str] = set()
        for chat_id in ("of-bob", "of-ada", "nobody's"):
            with pytest.raises(OtherShareError) as caught:
                nodes[0].for_user(BOB).get_chat(chat_id)
            answers.add(str(caught.value))
        assert 1 == len(answers)
        assert "hi" == nodes[0].for_user(BOB).append("of-bob", [text("hi")])[0].text
        with pytest.raises(ChatNotFoundError):
            nodes[0].for_user(ADA).append("of-bob", [text("no")])


def test_writes_from_everywhere(server: Server, tmp_path: Path) -> None:
    """Each kind of change to a chat that is elsewhere is decided as where it is held, and seen there."""
    with shares(server, tmp_path) as (_, nodes):
        home, away = nodes[0], nodes[1]
        assert away.upsert_chat("c", ADA, title="t").title == "t"
        assert away.upsert_chat("c", ADA) == away.upsert_chat("c", ADA)
        first, second = away.append("c", [text("a", id="a"), text("b", id="b")])
        assert [first] == away.append("c", [text("a", id="a")])
        assert away.fork("c", first.id).message_count == 1
        away.append("c", [text("x", id="x")])
        assert away.set_active_branch("c", "main").name == "main"
        away.set_checkpoint("c", "here", second.id)
        assert away.update_chat("c", metadata={"k": 1}).metadata == {"k": 1}
        assert away.annotate("c", "a", hidden=True).hidden
        with pytest.raises(HeadConflictError):
            away.append("c", [text("no")], expected_head="a")
        with pytest.raises(ChatExistsError):
            away.create_chat("c", BOB)
        with pytest.raises(OwnerMismatchError):
            away.upsert_chat("c", BOB)
        with one_command(away):
            once = away.append("c", [text("once")])
        with one_command(away):
            assert once == away.append("c", [text("once")])

        home.append("c", [text("from home")])
        assert "after it" == away.append("c", [text("after it")])[0].text
        home.sync()
        assert ["a", "b", "once", "from home", "after it"] == texts(home, "c")
        assert 2 == len(home.list_branches("c"))
        check_chat(home, "c")
        assert away.list_chats() == []


def conversation(chat_id: str, owner: str) -> ImportedChat:
    message = ImportedMessage(id=f"{chat_id} m", parent_id=None, name="user", data="hi", created_at=1)
    main = ImportedBranch(name="main", head_message_id=message.id, is_active=True)
    return ImportedChat(
        id=chat_id, user_id=owner, title=None, metadata=None, created_at=1, messages=(message,), branches=(main,)
    )


@pytest.mark.guard
def test_imports_from_everywhere(server: Server, tmp_path: Path) -> None:
    """Conversations that all nodes import, one after the other or at once, are there once, each in the share of its owner."""
    chats = [conversation(f"chat-{number:02}", owner) for number, owner in enumerate([ADA, BOB, CYD] * 8)]
    with shares(server, tmp_path) as (_, nodes):

        def add(node: Ledger, given: list[ImportedChat]) -> int:
            return sum(one.get_result().messages_added for one in import_chats(node, given))

        assert [8, 0, 0] == [add(node, chats[:8]) for node in nodes]
        with ThreadPoolExecutor(len(nodes)) as threads:
            assert 16 == sum(threads.map(add, nodes, [chats] * len(nodes)))
        for number, node in enumerate(nodes):
            node.sync()
            assert [f"chat-{at:02}" for at in range(number, 24, 3)] == sorted(chat.id for chat in node.list_chats())
            for chat in node.list_chats():
                check_chat(node, chat.id)


@contextlib.contextmanager
def one_command(ledger: Ledger) -> Generator[None]:
    """One command, however often it is repeated."""
    with ledger.context(command_id="command"):
        yield


def test_deleted_from_elsewhere(server: Server, tmp_path: Path) -> None:
    """It is erased at once; the id can be used again by the owner only, as a chat stays at its place."""
    with shares(server, tmp_path) as (location, nodes):
        nodes[0].create_chat("c", ADA)
        nodes[0].append("c", [text("secret")])
        assert nodes[2].delete_chat("c")
        assert not nodes[2].delete_chat("c")

        nodes[0].sync()
        assert nodes[0].get_chat("c") is None
        (tombstone,) = nodes[0].history("c")
        assert tombstone.version == 3
        with pytest.raises(ChatExistsError):
            nodes[0].create_chat("c", BOB)
        assert nodes[1].create_chat("c", ADA).message_count == 0
        assert ["again"] == [message.text for message in nodes[1].append("c", [text("again")])]
        nodes[0].sync()
        assert ["again"] == texts(nodes[0], "c")
        with chatledger.open(location, index=tmp_path / "whole") as whole:
            check_chat(whole, "c")
            assert whole.verify().deletion_count == 1


@pytest.mark.soak
def test_guests_leave(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node that does not hold a chat has read of it to write to it is gone soon, so that a deletion leaves nothing of it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with shares(server, tmp_path) as (_, nodes):
        for number in range(20):
            nodes[0].create_chat(f"chat-{number}", ADA)
            nodes[1].append(f"chat-{number}", [text("secret")])
        assert 1 <= len(list(scratch.iterdir())) <= 16
        nodes[0].delete_chat("chat-19")
        eventually(lambda: not list(scratch.iterdir()), within_s=30)
        assert "again" == nodes[1].append("chat-1", [text("again")])[0].text
        with pytest.raises(ChatNotFoundError):
            nodes[1].append("chat-19", [text("no")])
    assert list(scratch.iterdir()) == []


@pytest.mark.soak
def test_one_id_is_one_chat(server: Server, tmp_path: Path) -> None:
    """Of users in different shares who make a chat of the same id at the same time, one does."""
    with shares(server, tmp_path) as (location, nodes):
        for number in range(10):
            start, made = threading.Barrier(3), list[str]()

            def create(
                node: Ledger, user: str, number: int = number, start: threading.Barrier = start, made: list[str] = made
            ) -> None:
                start.wait()
                with contextlib.suppress(ChatExistsError):
                    made.append(node.create_chat(f"chat-{number}", user).user_id)

            threads = [threading.Thread(target=create, args=pair) for pair in zip(nodes, [BOB, CYD, ADA], strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert 1 == len(made)
        with chatledger.open(location, index=tmp_path / "whole") as whole:
            assert 10 == whole.verify().chat_count


@pytest.mark.soak
def test_shares_of_other_numbers(server: Server, tmp_path: Path) -> None:
    """The same stream is held in three shares, in five, and whole; a share that changes builds its index from its events."""
    users = [f"user-{number}" for number in range(12)]
    with shares(server, tmp_path) as (location, nodes):
        for number, user in enumerate(users):
            nodes[number % 3].create_chat(f"chat-{number}", user)
        for node in nodes:
            node.sync()
        held = {chat.id for node in nodes for chat in node.list_chats()}
        assert len(users) == len(held) == sum(len(node.list_chats()) for node in nodes)
        fifths: list[str] = []
        for number in range(5):
            with chatledger.open(location, share=(number, 5), index=tmp_path / "moving") as node:
                found = node.list_chats()
                assert all(bucket_of(chat.user_id) % 5 == number for chat in found)
                fifths += [chat.id for chat in found]
        assert sorted(held) == sorted(fifths)
        with chatledger.open(location, index=tmp_path / "whole") as whole:
            assert len(users) == whole.verify().chat_count
            whole.append("chat-3", [text("by who has all")])
        for node in nodes:
            node.sync()
        assert 1 == sum(len(node.search("who")) for node in nodes)


@pytest.mark.soak
def test_states_and_threads(server: Server, tmp_path: Path) -> None:
    """A state of a graph is where the chats of its user are; agents' threads are with who has all, and pass by the shares."""
    with shares(server, tmp_path) as (location, nodes):
        ids = [state_id(user, "talk") for user in (ADA, BOB, CYD)]
        for one, node in zip(ids, nodes, strict=True):
            StateStore(node, nodes=["n"]).put(one, {"answer": 42})
        assert StateStore(nodes[1], nodes=["n"]).get(ids[1]) is not None
        with pytest.raises(OtherShareError, match="share 2 of 3"):
            StateStore(nodes[1], nodes=["n"]).get(ids[2])
        with chatledger.open(location, index=tmp_path / "whole") as whole:
            assert 3 == whole.verify().state_count
            put(Threads(whole), "thread", "one", {"key": "value"})
            assert 1 == whole.verify().thread_count
            with pytest.raises(OtherShareError, match="in no share"):
                put(Threads(nodes[0]), "thread", "two", {"key": "value"})
            for node in nodes:
                node.sync()
                node.rebuild()
                assert (0, 1) == (node.verify().thread_count, node.verify().state_count)


def test_sweeps_leave_other_shares_alone(server: Server, tmp_path: Path) -> None:
    """A sweep deletes what has ended of its own share; live streams and large data of others stay."""
    with shares(server, tmp_path) as (_, nodes):
        for node, user in zip(nodes, (ADA, BOB, CYD), strict=True):
            node.create_chat(f"of-{user}", user, expires_at=1)
            node.create_chat(f"kept-{user}", user)
            node.append(f"kept-{user}", [NewMessage("user", "large " * 60_000), NewMessage("user", user * 100_000)])
            with node.live(f"kept-{user}", id="answer") as answer:
                answer.write("half")
        assert [f"of-{ADA}"] == nodes[0].sweep().chats
        assert [f"of-{BOB}"] == nodes[1].sweep().chats
        assert nodes[1].delete_chat(f"kept-{BOB}")
        nodes[2].rebuild()
        assert ["large " * 60_000, CYD * 100_000] == texts(nodes[2], f"kept-{CYD}")
        for node in nodes:
            LiveEraser(store_of(node).live, store_of(node).whole("verify").index, is_whole=False).tidy()
        assert ["answer"] == [one.id for one in nodes[2].list_live()] == [one.id for one in nodes[0].list_live()]
        with pytest.raises(OtherShareError, match="share 2 of 3"):
            nodes[0].list_live(f"kept-{CYD}")
        assert nodes[2].get_chat(f"of-{CYD}") is not None


def test_a_ledger_of_all_chats_sweeps_by_rules(server: Server, tmp_path: Path) -> None:
    """A share does not, also where the rules lie in it: it would note that the rule went along the whole log."""
    with (
        shares(server, tmp_path) as (location, nodes),
        chatledger.open(location, index=tmp_path / "whole") as whole,
    ):
        for node, user in zip(nodes, (ADA, BOB, CYD), strict=True):
            node.create_chat(f"of-{user}", user)
            node.append(f"of-{user}", [NewMessage("user", "a secret")])
        whole.sync()
        whole.set_retention("short", erases="content", keep_days=1)
        for node in nodes:
            node.sync()
            assert node.sweep(now=2**42).messages == 0
        assert whole.sweep(now=2**42).messages == 3


@pytest.mark.parametrize("query", ["share=3/3", "share=1", "share=0/7", "share=0/3&share=", "part=0/3"])
def test_a_share_in_the_location(query: str, server: Server, tmp_path: Path) -> None:
    """It may be said there, too, for the command line; what is no share is refused."""
    location = place(server, new_name())
    with pytest.raises(ConfigurationError, match="share"):
        chatledger.open(f"{location}?{query}", create=True, index=tmp_path / "index")
    with chatledger.open(f"{location}?share=0/3", create=True, index=tmp_path / "index") as node:
        node.create_chat("c", BOB)
        assert node.list_chats() == []
    with pytest.raises(ConfigurationError, match="say it once"):
        chatledger.open(f"{location}?share=0/3", share=(1, 3), index=tmp_path / "index")


def test_a_stream_without_shares(server: Server, tmp_path: Path) -> None:
    """It stays as it was, and says why it cannot be held in shares."""
    location = place(server, new_name())
    with chatledger.open(location, create=True, index=tmp_path / "whole") as ledger:
        ledger.create_chat("c", ADA)
    with pytest.raises(ConfigurationError, match="was made without share="):
        chatledger.open(location, share=(0, 3), index=tmp_path / "share")


def test_what_needs_all_chats(server: Server, tmp_path: Path) -> None:
    """Backups, anchors and agents' threads are refused in a share, with what to do; positions of others are waited for."""
    with shares(server, tmp_path) as (location, nodes):
        nodes[0].create_chat("a", ADA)
        nodes[1].create_chat("b", BOB)
        last = nodes[1].last_position()
        assert nodes[0].sync(last) <= last
        with pytest.raises(LogUnavailableError):
            nodes[0].sync(last + 1, timeout_s=0.2)
        with pytest.raises(AccessDeniedError, match="without share="):
            nodes[0].backup(tmp_path / "backup")
        for refused in (
            lambda: nodes[0].hold("user", ADA),
            lambda: nodes[0].release("user", ADA),
            nodes[0].holds,
            lambda: nodes[0].set_retention("default", keep_days=1),
            nodes[0].retention,
        ):
            with pytest.raises(AccessDeniedError, match="without share="):
                refused()
        key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with pytest.raises(AccessDeniedError, match="without share="):
            nodes[0].anchor(key)
        with pytest.raises(OtherShareError, match="in no share"):
            nodes[0].export_thread("t")
        with chatledger.open(location, index=tmp_path / "whole") as whole:
            whole.backup(tmp_path / "backup")


def test_a_hold_that_was_put_elsewhere_holds_in_a_share(server: Server, tmp_path: Path) -> None:
    """Its mark is in the chat, so the node of its owner refuses a deletion and a redaction, and so does another node that writes there."""
    with shares(server, tmp_path) as (location, nodes):
        nodes[0].create_chat("a", ADA)
        (message,) = nodes[0].append("a", [text("case 12")])
        with chatledger.open(location, index=tmp_path / "whole") as whole:
            whole.hold("user", ADA)
            nodes[0].sync(whole.last_position())
            for node in nodes[:2]:
                with pytest.raises(HeldError):
                    node.delete_chat("a")
            with pytest.raises(HeldError):
                nodes[0].redact(message.id)
            whole.release("user", ADA)
            nodes[0].sync(whole.last_position())
            assert nodes[1].delete_chat("a")


def test_a_hold_on_a_user_covers_what_begins_later_in_a_share(server: Server, tmp_path: Path) -> None:
    """Whichever node begins it, what begins is marked, refuses its deletion, and goes again once the hold is released."""
    with shares(server, tmp_path) as (location, nodes), chatledger.open(location, index=tmp_path / "whole") as whole:
        whole.create_chat("held", BOB)
        whole.hold("chat", "held", reason="case 11")
        hold = whole.hold("user", ADA, reason="case 12")
        nodes[0].create_chat("here", ADA)
        nodes[1].create_chat("elsewhere", ADA)
        nodes[1].create_chat("free", BOB)
        StateStore(nodes[0]).put(state_id(ADA, "alone"), {"step": 1})
        StateStore(nodes[0]).put(state_id(ADA, "held"), {"step": 1})
        StateStore(nodes[1]).put(state_id(BOB, "held"), {"step": 1})
        ItemStore(nodes[0].for_user(ADA)).put(("memories",), "card", {"number": 1})
        for node in nodes:
            node.sync(whole.last_position())
        whole.sync()

        assert [hold, hold] == [chat.hold for chat in nodes[0].list_chats()]
        # One hold is shown: that on the conversation before that on the user.
        assert {"held": "case 11", "alone": "case 12"} == {
            info.conversation_id: info.hold and info.hold.reason for info in StateStore(nodes[0]).list()
        }
        assert ["case 11"] == [info.hold and info.hold.reason for info in StateStore(nodes[1]).list()]
        for node in nodes[:2]:
            for chat_id in ("here", "elsewhere"):
                with pytest.raises(HeldError):
                    node.delete_chat(chat_id)
        with pytest.raises(HeldError):
            ItemStore(nodes[0].for_user(ADA)).delete(("memories",), "card")
        assert nodes[1].delete_chat("free")
        whole.release("user", ADA)
        nodes[0].create_chat("after", ADA)
        nodes[0].sync(whole.last_position())
        assert [None] * 3 == [chat.hold for chat in nodes[0].list_chats()]
        assert nodes[1].delete_chat("here")
        assert nodes[0].delete_chat("elsewhere")


def test_what_began_before_its_writer_knew_the_hold_is_not_destroyed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark may be missing where it began while the hold was put, so who destroys it asks for the hold again."""
    with shares(server, tmp_path) as (location, nodes), chatledger.open(location, index=tmp_path / "whole") as whole:
        store = store_of(nodes[0])
        assert isinstance(store, Store)
        with monkeypatch.context() as patch:
            patch.setattr(store.index, "hold_elsewhere", None)
            whole.hold("user", ADA)
            nodes[0].create_chat("early", ADA)
            (message,) = nodes[0].append("early", [text("case 12")])

        for node in nodes[:2]:
            with pytest.raises(HeldError):
                node.delete_chat("early")
        with pytest.raises(HeldError):
            nodes[0].redact(message.id)


def test_a_hold_on_a_thread_holds_its_chat_in_a_share(server: Server, tmp_path: Path) -> None:
    """The thread is in no share; the chat with which it would go is."""
    with shares(server, tmp_path) as (location, nodes), chatledger.open(location, index=tmp_path / "whole") as whole:
        nodes[0].create_chat("t", ADA)
        whole.sync()
        put(Threads(whole), "t", "one", {"key": "value"})
        whole.hold("thread", "t")
        for node in nodes[:2]:
            with pytest.raises(HeldError):
                node.delete_chat("t")
        whole.release("thread", "t")
        assert nodes[1].delete_chat("t")


def test_a_feed_wakes_for_its_share(server: Server, tmp_path: Path) -> None:
    """A feed of a node gives the events of its share, in order, whoever wrote them, and only those."""
    with shares(server, tmp_path) as (_, nodes), nodes[0].feed() as feed:
        nodes[1].create_chat("b", BOB)
        nodes[1].create_chat("a", ADA)
        nodes[2].append("b", [text("not this")])
        nodes[2].append("a", [text("this")])
        found = [next(feed).chat_id for _ in range(2)]

        assert ["a", "a"] == found
        eventually(lambda: texts(nodes[0], "a") == ["this"])
        nodes[1].append("b", [text("nor this")])
        assert not store_of(nodes[0]).log.wait(nodes[0].sync(), 0.3)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["create", "append", "append", "append", "update", "fork", "delete", "large", "move", "state"]),
        st.integers(0, 3),
    ),
    min_size=5,
    max_size=40,
)


@pytest.mark.soak
@settings(max_examples=examples(16))
@given(steps=STEPS)
def test_shares_make_up_the_whole(server: Server, steps: list[tuple[int, str, int]]) -> None:
    """Whoever writes what: each chat is in one share, as in a ledger that has all, and as in an index that is built anew."""
    with tempfile.TemporaryDirectory() as folder, shares(server, Path(folder)) as (location, nodes):
        for writer, step, number in steps:
            with contextlib.suppress(NotFoundError, AlreadyExistsError):
                take_step(nodes[writer], step, number)
        with chatledger.open(location, index=Path(folder) / "whole") as whole:
            assert whole.verify().chat_count == len(whole.list_chats())
            described = {chat.id: (chat, whole.export_chat(chat.id)) for chat in whole.list_chats()}
            found: dict[str, object] = {}
            for share, node in enumerate(nodes):
                node.sync()
                assert node.verify().chat_count == len(node.list_chats())
                with chatledger.open(location, share=(share, 3), index=Path(folder) / "fresh") as fresh:
                    assert fresh.list_chats() == node.list_chats()
                    assert fresh.search("message") == node.search("message")
                for chat in node.list_chats():
                    assert chat.id not in found
                    found[chat.id] = chat, node.export_chat(chat.id)
            assert described == found


def take_step(node: Ledger, step: str, number: int) -> None:
    chat_id, owner = f"chat-{number}", [ADA, BOB, CYD, ""][number]
    if step == "create":
        node.create_chat(chat_id, owner)
    elif step == "append":
        node.append(chat_id, [text("a message"), text("another message")])
    elif step == "update":
        node.update_chat(chat_id, metadata={"by": "somebody"})
    elif step == "fork":
        node.fork(chat_id, next(iter(node.append(chat_id, [text("to fork")]))).id)
    elif step == "large":
        node.append(chat_id, [text("large " * 60_000)])
    elif step == "move":
        node.move_head(chat_id, "main", None, expected=ANY)
    elif step == "state":
        node.set_checkpoint(chat_id, "here", node.append(chat_id, [text("here")])[0].id)
    else:
        node.delete_chat(chat_id)


def test_a_lost_last_event_is_noticed(tmp_path: Path) -> None:
    """An event that the server counts and cannot read is missed also where it is the last one of its chat, on a new index."""
    with running(tmp_path / "server") as server:
        location = place(server, "shared")
        with chatledger.open(location, create=True, share=(0, 3), index=tmp_path / "0", compression="none") as node:
            node.create_chat("a", ADA)
            node.append("a", [text("findable words" + "x" * 300)])
            node.create_chat("b", ADA)
        server.stop()
        (block,) = (server.base / "js").glob("jetstream/*/streams/shared/msgs/1.blk")
        content = bytearray(block.read_bytes())
        content[content.index(b"findable words")] ^= 1
        block.write_bytes(content)
        server.start()
        location = place(server, "shared")
        with pytest.raises(ChainIntegrityError, match="has 3 events of share 0/3, and 2 could be read"):
            chatledger.open(location, share=(0, 3), index=tmp_path / "fresh")
