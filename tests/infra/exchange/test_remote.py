"""A ledger behind a server is pulled from: as one that is open here, and no more than its key may see."""

from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import IO, Any

import pytest
from msgspec.structs import replace
from tests.support.http_world import serving

import chatledger
from chatledger import Ledger, assistant, user
from chatledger.admin import PullReport, RemoteLedger
from chatledger.errors import (
    AccessDeniedError,
    ConfigurationError,
    InvalidValueError,
    LogUnavailableError,
    MessageNotFoundError,
)
from chatledger.infra.exchange import remote as remote_module
from chatledger.infra.ledger.peers import Settlement
from chatledger.server import Principal, create_app

LARGE = "leeks " * 60_000
PEOPLE = {
    "Bearer of-ada": Principal(user_id="ada", scopes=frozenset({"read"})),
    "Bearer of-all": Principal(scopes=frozenset({"read"})),
    "Bearer ada-writes": Principal(user_id="ada", scopes=frozenset({"write"})),
    "Bearer all-write": Principal(scopes=frozenset({"write"})),
}


def authenticate(headers: Mapping[str, str]) -> Principal | None:
    return PEOPLE.get(headers.get("authorization", ""))


@pytest.fixture
def served() -> Iterator[tuple[Ledger, str]]:
    """A ledger, and the address of a server of it."""
    opening = chatledger.open_async("memory:")
    with serving(create_app(opening, authenticate=authenticate)) as url:
        assert opening.opened is not None
        opening.opened.create_chat("trip", "ada", title="Riga")
        opening.opened.append("trip", [user(LARGE, id="m1"), assistant("By train.", id="m2")])
        opening.opened.create_chat("of ben/1", "ben")
        opening.opened.append("of ben/1", [user("secret", id="b1")])
        yield opening.opened, url


@pytest.fixture
def office(served: tuple[Ledger, str]) -> Ledger:
    return served[0]


@pytest.fixture
def url(served: tuple[Ledger, str]) -> str:
    return served[1]


def test_it_is_pulled_from_like_one_that_is_open(office: Ledger, url: str) -> None:
    remote = RemoteLedger(f"{url}/", key="of-all")
    with chatledger.open("memory:") as laptop:
        pulled = laptop.pull(remote, name="office")
        assert {chat.chat_id: (chat.outcome, chat.messages) for chat in pulled.chats} == {
            "trip": ("new", 2),
            "of ben/1": ("new", 1),
        }
        assert laptop.pull(remote, name="office").chats == ()
        office.append("of ben/1", [user("more", id="b2")])
        office.append("trip", [user("o", id="o1")])
        laptop.append("trip", [user("l", id="l1")])
        pulled = laptop.pull(remote, name="office")
        assert {chat.chat_id: chat.outcome for chat in pulled.chats} == {"of ben/1": "continued", "trip": "merged"}
        assert {branch.name: branch.head_message_id for branch in laptop.list_branches("trip")} == {
            "main": "l1",
            "office/main": "o1",
        }
        assert laptop.export_chat("of ben/1") == office.export_chat("of ben/1")
        office.delete_chat("of ben/1")
        assert [chat.outcome for chat in laptop.pull(remote, name="office").chats] == ["deleted"]
        laptop.verify()


def test_a_key_shows_what_its_user_may_see(url: str) -> None:
    with chatledger.open("memory:") as laptop:
        laptop.create_chat("mine", "ada")
        pulled = laptop.pull(RemoteLedger(url, key="of-ada"), name="office")
        assert [chat.chat_id for chat in pulled.chats] == ["trip"]
        named = laptop.pull(RemoteLedger(url, key="of-ada"), name="office", chat_ids=["of ben/1", "absent"])
        assert (named.compared, named.chats) == (0, ())


def test_what_goes_wrong_is_said(url: str, office: Ledger) -> None:
    with chatledger.open("memory:") as laptop:
        for key in (None, "wrong"):
            with pytest.raises(AccessDeniedError, match="give a key"):
                laptop.pull(RemoteLedger(url, key=key), name="office")
        with pytest.raises(InvalidValueError, match="answers 404"):
            laptop.pull(RemoteLedger(f"{url}/elsewhere", key="of-all"), name="office")
        with pytest.raises(LogUnavailableError, match="does not answer"):
            laptop.pull(RemoteLedger("http://127.0.0.1:9", key="of-all"), name="office")
        assert laptop.list_chats() == []
    with pytest.raises(ConfigurationError, match="no address"):
        RemoteLedger("nats://host/x")
    with pytest.raises(InvalidValueError, match="same ledger"):
        office.pull(RemoteLedger(url, key="of-all"), name="office")


def told(report: PullReport) -> dict[str, str]:
    return {chat.chat_id: chat.outcome for chat in report.chats}


def hashes(ledger: Ledger, chat_id: str) -> list[bytes]:
    return [event.hash for event in ledger.history(chat_id)]


def test_it_is_pushed_to_like_one_that_is_open(office: Ledger, url: str) -> None:
    remote = RemoteLedger(url, key="all-write")
    with chatledger.open("memory:") as laptop:
        laptop.pull(remote, name="office")
        laptop.create_chat("new one", "eve")
        laptop.append("new one", [user(LARGE, id="n1")])
        laptop.append("of ben/1", [user("l", id="l1")])
        laptop.append("trip", [user("l", id="l2")])
        office.append("trip", [user("o", id="o1")])
        planned = laptop.push(remote, name="laptop", dry_run=True)
        pushed = laptop.push(remote, name="laptop")
        assert told(planned) == told(pushed) == {"new one": "new", "of ben/1": "continued", "trip": "merged"}
        for chat_id in ("new one", "of ben/1"):
            assert hashes(laptop, chat_id) == hashes(office, chat_id)
        assert office.get_message("n1") == laptop.get_message("n1")
        assert {branch.name: branch.head_message_id for branch in office.list_branches("trip")} == {
            "main": "o1",
            "laptop/main": "l2",
        }
        assert laptop.push(remote, name="laptop").chats == ()
        laptop.append("trip", [user("l", id="l3")])
        laptop.redact("m1")
        laptop.delete_chat("new one")
        laptop.delete_chat("of ben/1")
        laptop.create_chat("of ben/1", "ben", title="Anew")
        office.append("of ben/1", [user("o", id="o2")])
        assert told(laptop.push(remote, name="laptop")) == {
            "new one": "deleted",
            "of ben/1": "replaced",
            "trip": "merged",
        }
        assert office.get_chat("new one") is None
        assert [chat.title for chat in office.list_chats(user_id="ben")] == ["Anew"]
        laptop.create_branch("trip", "side", "m2")
        laptop.append("trip", [user("s", id="s1")], branch="side")
        laptop.push(remote, name="laptop")
        laptop.merge("trip", "side", "main", summary="both")
        merge = laptop.get_messages("trip")[-1]
        laptop.append("trip", [user("s", id="s2")], branch="side")
        assert told(laptop.push(remote, name="laptop")) == {"trip": "merged"}
        assert merge.merged_from == ("s1",)
        assert office.get_message(merge.id) == merge
        redacted = office.get_message("m1")
        assert redacted is not None
        assert redacted.redacted is not None
        assert laptop.push(remote, name="laptop").chats == ()
        office.verify()


def test_copies_on_the_server_lose_what_a_push_redacts(office: Ledger, url: str) -> None:
    remote = RemoteLedger(url, key="ada-writes")
    with chatledger.open("memory:") as laptop:
        laptop.pull(remote, name="office")
        office.fork_chat("trip", "m2", new_chat_id="copy", user_id="ada")
        office.fork_chat("trip", "m2", new_chat_id="of ben", user_id="ben")
        laptop.redact("m2", reason="a request")
        (pushed,) = laptop.push(remote, name="laptop").chats
        copied, other = office.get_messages("copy")[1], office.get_messages("of ben")[1]
        assert pushed.copies == {copied.id: "copy"}
        assert copied.redacted is not None
        assert copied.redacted.reason == "a request"
        assert other.text == "By train.", "of which the key may change nothing"
        assert remote.redact_copies(["m1", "b1", "absent", copied.id]) == []
        assert office.get_messages("of ben/1")[0].text == "secret"


def test_legal_holds_come_with_a_key_for_everybody(office: Ledger, url: str) -> None:
    office.hold("chat", "trip", reason="a case")
    with chatledger.open("memory:") as laptop:
        assert laptop.pull(RemoteLedger(url, key="of-ada"), name="office").holds == ()
        assert laptop.pull(RemoteLedger(url, key="of-all"), name="office").holds == tuple(office.holds())
        assert laptop.push(RemoteLedger(url, key="all-write"), name="laptop").holds == ()


def test_what_the_key_may_not_write_is_named_and_the_rest_comes(office: Ledger, url: str) -> None:
    """A user writes what is the user's, in the user's name; what others have is not shown, and their ids are taken."""
    office.create_chat("read", "ben", members={"ada": "reader"})
    office.append("read", [user("b", id="b2")])
    office.create_chat("written", "ben", members={"ada": "writer"})
    office.append("written", [user("b", id="b3")])
    remote = RemoteLedger(url, key="ada-writes")
    with chatledger.open("memory:") as laptop:
        laptop.pull(remote, name="office")
        for chat_id in ("trip", "read", "written"):
            laptop.append(chat_id, [user("l", id=f"of {chat_id}")])
        laptop.create_chat("of ben/1", "ada")
        laptop.create_chat("mine", "ada")
        laptop.create_chat("evil", "ben")
        laptop.create_chat("forged", "ada")
        with laptop.context(actor="ben"):
            laptop.append("forged", [user("I, Ben, owe ada 100", id="f1")])
        pushed = laptop.push(remote, name="laptop")
        assert told(pushed) == {
            "evil": "refused",
            "forged": "refused",
            "mine": "new",
            "of ben/1": "refused",
            "read": "refused",
            "trip": "continued",
            "written": "continued",
        }
        why = {chat.chat_id: str(chat.why) for chat in pushed.chats}
        assert "another user" in why["evil"]
        assert "somebody else" in why["forged"]
        assert "reader" in why["read"]
        assert hashes(office, "written") == hashes(laptop, "written")
        assert [message.id for message in office.get_messages("read")] == ["b2"]
        assert office.get_chat("evil") is None
        laptop.delete_chat("written")
        office.append("written", [user("o", id="o9")])
        laptop.redact("of trip")
        office.append("trip", [user("o", id="o8")])
        pushed = laptop.push(remote, name="laptop", chat_ids=["written", "trip"])
        assert told(pushed) == {"trip": "merged", "written": "refused"}
        assert office.get_chat("written") is not None
    with chatledger.open("memory:") as laptop:
        laptop.create_chat("a", "ada")
        with pytest.raises(AccessDeniedError, match="403"):
            laptop.push(RemoteLedger(url, key="of-ada"), name="laptop")


def test_a_bundle_that_is_too_large_for_a_request_is_split(
    office: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteLedger(url, key="all-write")
    monkeypatch.setattr(remote_module, "_MOST_BYTES", 1_500)
    with chatledger.open("memory:") as laptop:
        for number in range(3):
            laptop.create_chat(f"chat {number}", "ada")
            for place in range(4):
                laptop.append(f"chat {number}", [user("leeks", id=f"{number}-{place}")])
        pushed = laptop.push(remote, name="laptop")
        assert [(chat.events, chat.messages) for chat in pushed.chats if chat.outcome == "new"] == [(5, 4)] * 3
        assert all(hashes(office, f"chat {number}") == hashes(laptop, f"chat {number}") for number in range(3))


def test_what_is_too_large_for_a_request_is_refused_and_the_others_come(
    office: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the push each time, and it was said that the server does not answer."""
    remote = RemoteLedger(url, key="all-write")
    with chatledger.open("memory:") as laptop:
        laptop.pull(remote, name="office")
        office.append("trip", [user("o", id="o1")])
        laptop.append("trip", [user("l" * 9_000, id="l1")])
        laptop.append("of ben/1", [user("l", id="l2")])
        laptop.append("of ben/1", [user("l" * 9_000, id="l3")])
        for number in range(3):
            laptop.create_chat(f"chat {number}", "ada")
            laptop.append(f"chat {number}", [user("leeks")])
        monkeypatch.setattr(remote_module, "_MOST_BYTES", 8_000)
        pushed = laptop.push(remote, name="laptop")
        others = {f"chat {number}": "new" for number in range(3)}
        assert told(pushed) == {"of ben/1": "refused", "trip": "refused", **others}
        assert {"a request" in str(chat.why) for chat in pushed.chats if chat.outcome == "refused"} == {True}
        assert [message.id for message in office.get_messages("of ben/1")] == ["b1", "l2"], "up to that event"
        monkeypatch.undo()
        assert told(laptop.push(remote, name="laptop")) == {"of ben/1": "continued", "trip": "merged"}


def test_a_server_takes_nothing_that_does_not_hold(office: Ledger, url: str) -> None:
    remote = RemoteLedger(url, key="all-write")
    settlement = Settlement(chat_id="trip", outcome="merged", name="laptop", tip="", ended=0)
    with pytest.raises(InvalidValueError, match="422"):
        remote.take_in(BytesIO(b"chatledger-bundle/1\n"))
    with pytest.raises(InvalidValueError, match="does not say"):
        remote.settle(settlement, office.export_chat("of ben/1"))
    with pytest.raises(InvalidValueError, match="does not say"):
        remote.settle(settlement, None)
    whole = office.export_chat("trip")
    (message,) = (replace(message, id="z", parent_id="y") for message in whole.messages[:1])
    stranger = replace(whole, messages=(message,), branches=(replace(whole.branches[0], head_message_id="z"),))
    with pytest.raises(MessageNotFoundError):
        remote.settle(settlement, stranger)
    with chatledger.open("memory:") as laptop, pytest.raises(InvalidValueError, match="open ledger"):
        laptop.push("sqlite:///office.db", name="laptop")  # type: ignore[arg-type]


class _Counted(RemoteLedger):
    """A server of which is known what it was asked for, and that may answer something else."""

    def __init__(self, url: str, answers: Mapping[str, bytes] | None = None) -> None:
        super().__init__(url, key="all-write")
        self.asked: list[str] = []
        self._answers = answers or {}

    def _ask_into(self, path: str, body: Any, stream: IO[bytes]) -> None:
        self.asked.append(path.removeprefix("/pulls/"))
        if path in self._answers:
            stream.write(self._answers[path])
        else:
            super()._ask_into(path, body, stream)


def test_many_chats_that_differ_are_asked_for_together(url: str) -> None:
    """Each cost a request."""
    remote = _Counted(url)
    with chatledger.open("memory:") as laptop:
        for number in range(50):
            laptop.create_chat(f"chat {number}", "ada")
        laptop.push(remote, name="laptop")
        for number in range(50):
            laptop.append(f"chat {number}", [user("more")])
        remote.asked.clear()
        assert set(told(laptop.push(remote, name="laptop")).values()) == {"continued"}
        assert remote.asked == ["sums", "sums", "sums", "heads", "standings", "take"]
        laptop.pull(remote, name="office")
        remote.asked.clear()
        assert laptop.push(remote, name="laptop").chats == ()
        assert remote.asked == ["sums"]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/pulls/sums", b'{"identity":"x","chats":1,"sums":{"../":"00"}}'),
        ("/pulls/sums", b'{"identity":"x","chats":1}'),
        ("/pulls/standings", b'{"standings":{}}'),
        ("/pulls/heads", b'{"heads":[{"chat_id":"trip"}]}'),
    ],
)
def test_a_server_that_answers_something_else_changes_nothing(url: str, path: str, answer: bytes) -> None:
    with chatledger.open("memory:") as laptop:
        with pytest.raises(InvalidValueError, match="does not"):
            laptop.pull(_Counted(url, {path: answer}), name="office")
        assert laptop.list_chats() == []
