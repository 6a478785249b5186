"""A ledger behind a server is pulled from: as one that is open here, and no more than its key may see."""

from collections.abc import Iterator, Mapping

import pytest
from tests.support.http_world import serving

import chatledger
from chatledger import Ledger, assistant, user
from chatledger.admin import RemoteLedger
from chatledger.errors import AccessDeniedError, ConfigurationError, InvalidValueError, LogUnavailableError
from chatledger.server import Principal, create_app

LARGE = "leeks " * 60_000
PEOPLE = {
    "Bearer of-ada": Principal(user_id="ada", scopes=frozenset({"read"})),
    "Bearer of-all": Principal(scopes=frozenset({"read"})),
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
