"""The permissions that `docs/how-to/secure-nats.md` gives to each role: what it needs works, and nothing else does."""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventsourcing.persistence import InterfaceError
from tests.support.jetstream_world import eventually
from tests.support.ledger_world import store_behind, text, texts
from tests.support.secure_world import serving

import chatledger
from chatledger import AccessDeniedError, Ledger, Login
from chatledger.errors import LogRefusedError
from chatledger.infra.log.nats.transport import payload_of
from chatledger.jetstream import JetStreamClient

pytestmark = pytest.mark.timeout(90)
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "secure-nats.md"
STREAMS = ("support", "KV_support-feeds", "support-blobs", "support-live", "support-redacted")
LIMITED = ("reader", "appender", "writer")


def login(role: str) -> Login:
    return Login(user=role, password=f"p-{role}", inbox_prefix="_INBOX" if role == "admin" else f"_INBOX_{role}")


class Served:
    def __init__(self, address: str, base: Path) -> None:
        self.place, self._base = f"nats://{address}/support", base
        self._clients: dict[str, JetStreamClient] = {}

    def open(self, role: str, *, create: bool = False, index: str = "") -> Ledger:
        folder = self._base / (index or role)
        return chatledger.open(self.place, login=login(role), create=create, index=folder, timeout_s=20)

    def ask(self, role: str, subject: str, payload: bytes = b"{}") -> bytes:
        """Return the server's answer to a request; raises `NotPermittedError` when the login may not make it."""
        if role not in self._clients:
            endpoint = login(role).endpoint((self.place.rpartition("/")[0],))
            self._clients[role] = JetStreamClient(lambda: endpoint, timeout_s=20)
        client = self._clients[role]
        connection = client.connection(client.deadline())
        token = connection.send([(subject, {}, payload)])
        return payload_of(connection.answer(token, time.monotonic() + 10), subject)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def shown_accounts() -> str:
    shown = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (accounts,) = [block for block in shown if "accounts" in block]
    for role in ("admin", *LIMITED):
        accounts = accounts.replace(f"${role.upper()}_PASSWORD", f'"p-{role}"')
    assert "PASSWORD" not in accounts
    return str(accounts)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    yield from served_with(shown_accounts(), tmp_path)


@pytest.fixture
def served_as_before(tmp_path: Path) -> Iterator[Served]:
    """With the permissions of ledgers that were made before there were live streams."""
    accounts = re.sub(r',? *"[^"\s]*support-live[^"\s]*",?', "", shown_accounts())
    assert "live" not in accounts
    yield from served_with(accounts, tmp_path)


def served_with(accounts: str, tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "server", accounts) as address:
        served = Served(address, tmp_path)
        with served.open("admin", create=True) as ledger:
            ledger.create_chat("c", "u")
            ledger.append("c", [text("hello", id="m")])
        yield served
        served.close()


@pytest.mark.parametrize("role", LIMITED)
def test_only_an_admin_makes_a_ledger(role: str, served: Served, tmp_path: Path) -> None:
    """A stream of another name is not made, and not even asked about."""
    other = served.place.replace("support", "other")
    with pytest.raises(AccessDeniedError, match=r"STREAM\.INFO\.other"):
        chatledger.open(other, login=login(role), create=True, index=tmp_path / "other", timeout_s=20)


def test_a_reader_reads_and_follows(served: Served) -> None:
    with served.open("admin") as ledger, served.open("reader") as reader:
        assert texts(reader, "c") == ["hello"]
        assert [hit.message.id for hit in reader.search("hello", chat_id="c")] == ["m"]
        assert reader.verify().position == 2
        feed = reader.feed(after=0)
        assert [next(feed).position, next(feed).position] == [1, 2]
        ledger.append("c", [text("more")])
        assert next(feed).position == 3
        eventually(lambda: texts(reader, "c") == ["hello", "more"])


def test_a_reader_does_not_write(served: Served) -> None:
    with served.open("reader") as reader:
        for write in (
            lambda: reader.append("c", [text("no")]),
            lambda: reader.create_chat("d", "u"),
            lambda: reader.delete_chat("c"),
            lambda: reader.create_branch("c", "b", "m"),
        ):
            with pytest.raises(AccessDeniedError, match=r"may not publish to support\.e"):
                write()
        with pytest.raises(AccessDeniedError, match=r"\$KV\.support-feeds"):
            next(reader.feed(name="named"))
        assert texts(reader, "c") == ["hello"]
    with served.open("admin") as ledger:
        assert (ledger.last_position(), texts(ledger, "c")) == (2, ["hello"])


@pytest.mark.parametrize("role", ["appender", "writer"])
def test_who_appends(role: str, served: Served) -> None:
    """Everything of a conversation, large data and positions of feeds among it."""
    with served.open(role) as ledger:
        ledger.append("c", [text("x" * 700_000, id="large")])
        ledger.create_branch("c", "b", "m")
        for recorded in ledger.feed(name="named", follow=False):
            assert recorded.position
        assert [feed.name for feed in ledger.feeds()] == ["named"]
    with served.open("admin") as admin:
        assert texts(admin, "c", branch="main") == ["hello", "x" * 700_000]


def test_an_append_only_login_deletes_a_chat(served: Served) -> None:
    """It is deleted, and says that its content stays; who may erase does so on opening."""
    with served.open("appender") as ledger:
        with pytest.raises(AccessDeniedError, match=r"MSG\.DELETE"):
            ledger.delete_chat("c")
        assert ledger.get_chat("c") is None
        ledger.create_chat("d", "u")
        assert stored(served, 2)
    # It goes on working, and opens again with something left to erase.
    with served.open("appender") as ledger:
        ledger.append("d", [text("more")])
        assert ledger.get_chat("c") is None
        assert stored(served, 2)
    with served.open("reader") as reader:
        assert (reader.get_chat("c"), texts(reader, "d")) == (None, ["more"])
    with served.open("writer") as ledger:
        assert not stored(served, 2)
        assert texts(ledger, "d") == ["more"]
        assert ledger.verify().deletion_count == 1


def test_who_takes_content_away(served: Served) -> None:
    """An admin makes the stream for that, and a writer goes on; all others read what is left. Who may not changes nothing."""
    with served.open("admin") as ledger:
        for _ in range(2):
            ledger.append("c", [text("more")])
        with (
            served.open("writer") as writer,
            pytest.raises(AccessDeniedError, match=r"STREAM\.CREATE\.support-redacted"),
        ):
            store_behind(writer).log.rewrite(2, [3])
        assert stored(served, 2)
        hashes = [recorded.hash for recorded in ledger.history()]
        assert store_behind(ledger).log.rewrite(3, [3])
    for role in ("appender", "reader"):
        with served.open(role, index=f"{role} of it") as ledger:
            with pytest.raises(AccessDeniedError, match=r"support-redacted\.r"):
                store_behind(ledger).log.rewrite(2, [3])
            assert stored(served, 2)
            assert hashes == [recorded.hash for recorded in ledger.history()]
    with served.open("writer") as ledger:
        assert store_behind(ledger).log.rewrite(2, [3])
        assert not stored(served, 2)
        assert hashes == [recorded.hash for recorded in ledger.history("c")]
        ledger.delete_chat("c")
        assert [] == store_behind(ledger).log.read_stream("c", after=0)[:-1]


def stored(served: Served, position: int) -> bool:
    """Whether the log still has a message at that position."""
    answer = served.ask("admin", "$JS.API.STREAM.MSG.GET.support", f'{{"seq": {position}}}'.encode())
    return b'"message"' in answer


def test_a_writer_deletes_a_chat(served: Served) -> None:
    with served.open("writer") as ledger:
        ledger.append("c", [text("x" * 700_000, id="large")])
        ledger.delete_chat("c")
        assert ledger.get_chat("c") is None
        assert not stored(served, 2)
        ledger.feed(name="named")
        ledger.forget_feed("named")


def test_a_writer_deletes_a_chat_with_the_permissions_that_it_had(served_as_before: Served) -> None:
    """Who may not even look for live streams has written none; deletions are finished, also those that others began."""
    with served_as_before.open("writer") as ledger:
        assert ledger.delete_chat("c")
        assert not stored(served_as_before, 2)
        ledger.create_chat("d", "u")
        assert [] == ledger.sweep().chats
    with served_as_before.open("appender") as appender, pytest.raises(AccessDeniedError, match=r"MSG\.DELETE"):
        appender.delete_chat("d")
    with served_as_before.open("writer") as ledger:
        assert 2 == ledger.verify().deletion_count
        ledger.create_chat("e", "u")
        with pytest.raises(AccessDeniedError, match="support-live"):
            ledger.live("e")


@pytest.mark.parametrize("role", ["appender", "writer"])
def test_who_appends_streams_answers(role: str, served: Served) -> None:
    """A reader follows them; who may erase drops them with their chat, others say that they may not."""
    with served.open(role) as ledger, served.open("reader") as reader:
        with ledger.live("c", id="s") as answer:
            answer.write("a")
            answer.flush()
            chunks = reader.read_live("c", "s")
            assert "a" == next(chunks).data
            answer.commit()
        assert ([], "committed") == (list(chunks), chunks.status)
        stream = ledger.get_live("c", "s")
        assert stream is not None
        ledger.live("c", id="left").close()
        (left,) = [found for found in reader.list_live("c") if found.id == "left"]
        with pytest.raises(AccessDeniedError, match="support-live"):
            reader.take_over_live(left)
        with contextlib.nullcontext() if role == "writer" else pytest.raises(AccessDeniedError):
            ledger.delete_chat("c")
    with served.open("writer") as ledger:
        assert eventually(lambda: live_subjects(served) == 0)


def live_subjects(served: Served) -> int:
    """Number of live streams that the server has."""
    answer = served.ask("admin", "$JS.API.STREAM.INFO.support-live", b'{"subjects_filter": ">"}')
    return len(json.loads(answer)["state"].get("subjects", {}))


@pytest.mark.parametrize("role", LIMITED)
def test_nobody_else_touches_streams(role: str, served: Served) -> None:
    """Neither the ledger's streams nor those of others; and only a writer erases."""
    verbs = [
        "DELETE",
        "UPDATE",
        "CREATE",
        "RESTORE",
        "SNAPSHOT",
        "PURGE",
        "MSG.DELETE",
        "LEADER.STEPDOWN",
        "PEER.REMOVE",
    ]
    asked = [f"$JS.API.STREAM.{verb}.{stream}" for verb in verbs for stream in (*STREAMS, "other")]
    asked += [
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.NAMES",
        "$JS.API.INFO",
        "$JS.API.CONSUMER.DURABLE.CREATE.support.x",
    ]
    asked += ["$JS.API.STREAM.MSG.GET.other", "$JS.API.DIRECT.GET.other", "$JS.API.CONSUMER.CREATE.other"]
    own = {f"$JS.API.STREAM.PURGE.{stream}" for stream in ("KV_support-feeds", "support-live")}
    own |= {f"$JS.API.STREAM.MSG.DELETE.{stream}" for stream in ("support", "support-blobs", "support-redacted")}
    for subject in asked:
        if role == "writer" and subject in own:
            continue
        with pytest.raises(InterfaceError, match=re.escape(f"may not publish to {subject}")):
            served.ask(role, subject)


def test_replies_to_others_are_not_heard(served: Served) -> None:
    """Without its own prefix a login is told so at once; with that of another it is refused too."""
    for prefix in ("_INBOX", "_INBOX_writer"):
        wrong = Login(user="reader", password="p-reader", inbox_prefix=prefix)
        with pytest.raises(LogRefusedError, match="inbox_prefix"):
            chatledger.open(served.place, login=wrong, timeout_s=60)
