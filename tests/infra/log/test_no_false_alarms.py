"""Readers of a sound log never take a deletion, at whatever stage it is, for a loss, nor a server that is behind."""

import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.ledger_world import store_behind
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import Encryption, Ledger, LogUnavailableError, Recorded, user
from chatledger.infra.log.cipher import new_key

KEY: Final = new_key()
CHATS = [f"chat {number}" for number in range(8)]
OWNERS = ("ada", "ben")


def step(ledger: Ledger, rng: random.Random, number: int) -> None:
    """Do something to a chat."""
    chat_id = rng.choice(CHATS)
    what = rng.random()
    if ledger.get_chat(chat_id) is None:
        ledger.create_chat(chat_id, rng.choice(OWNERS), ttl_seconds=rng.choice([None, None, 3600]))
    elif what < 0.15:
        ledger.delete_chat(chat_id)
    elif what < 0.2:
        ledger.append(chat_id, [user("large " * 20_000)])
    elif what < 0.3:
        ledger.append(chat_id, [user(f"{number}.{one}") for one in range(rng.randrange(1, 5))])
        ledger.fork(chat_id, ledger.get_messages(chat_id)[0].id)
    elif what < 0.33:
        ledger.rebuild()
    else:
        ledger.append(chat_id, [user(str(number))])


def read(ledger: Ledger, rng: random.Random) -> None:
    """Read in every way, from anywhere; what is read from the middle is what is read from the start."""
    after = rng.randrange(ledger.position + 1)
    whole = list(ledger.history())
    assert list(ledger.history(after=after)) == [recorded for recorded in whole if recorded.position > after]
    assert list(ledger.feed(after, follow=False)) == [recorded for recorded in whole if recorded.position > after]
    chat_id = rng.choice(CHATS)
    of_chat = [recorded for recorded in whole if recorded.chat_id == chat_id]
    assert list(ledger.history(chat_id)) == of_chat
    assert list(ledger.feed(after, chat_id=chat_id, follow=False)) == [one for one in of_chat if one.position > after]
    list(ledger.for_user("ada").history(after=after))
    list(ledger.history(after=after, up_to=rng.randrange(after, ledger.position + 1)))


PLACES: dict[str, Callable[[Path], Ledger]] = {
    "memory": lambda path: chatledger.open("memory:"),
    "directory": lambda path: chatledger.open(path / "data", durability="fast"),
    "zstd": lambda path: chatledger.open(path / "data", durability="fast", compression="zstd"),
    "encrypted": lambda path: chatledger.open(
        path / "data", index=path / "index", durability="fast", encryption=Encryption(KEY, index_at_rest="plain")
    ),
    "sqlite": lambda path: chatledger.open(f"sqlite:///{path / 'file.db'}"),
}


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
def test_after_each_step(tmp_path: Path, place: str) -> None:
    """Chats are made, written, deleted and made anew, and the index is rebuilt: all of it can be read at any time."""
    rng = random.Random(place)
    with PLACES[place](tmp_path) as ledger:
        for number in range(120):
            step(ledger, rng, number)
            if number % 4 == 0:
                read(ledger, rng)
        ledger.verify()


@pytest.mark.soak
@pytest.mark.parametrize("place", ["directory", "sqlite"])
def test_while_chats_are_deleted(tmp_path: Path, place: str) -> None:
    """Histories and feeds that are read while chats are erased, here and under another index, go on to the end."""
    ended = threading.Event()
    errors: list[BaseException] = []
    counts: list[int] = []

    def reader(ledger: Ledger) -> None:
        try:
            while not ended.is_set():
                counts.append(sum(1 for _ in ledger.history()))
                counts.append(sum(1 for _ in ledger.feed(0, follow=False)))
                for chat_id in CHATS:
                    counts.append(sum(1 for _ in ledger.history(chat_id)))  # noqa: PERF401 - they are looked at meanwhile
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            errors.append(error)

    def follower(ledger: Ledger) -> None:
        try:
            for recorded in ledger.feed(0):
                counts.append(recorded.position)  # noqa: PERF401 - as above
        except BaseException as error:  # noqa: BLE001 - as above
            errors.append(error)

    rng = random.Random(7)
    with PLACES[place](tmp_path) as ledger:
        location = ledger.location
        with chatledger.open(location, index=tmp_path / "other", durability="fast") as other:
            threads = [
                threading.Thread(target=work, args=(one,)) for work in (reader, follower) for one in (ledger, other)
            ]
            for thread in threads:
                thread.start()
            for number in range(60 if IS_SOAK else 12):
                chat_id = rng.choice(CHATS)
                ledger.upsert_chat(chat_id, "ada")
                for _ in range(rng.randrange(40)):
                    ledger.append(chat_id, [user(str(number))])
                if number % 3:
                    ledger.delete_chat(rng.choice(CHATS))
            ended.set()
            threads[0].join(60)
            threads[1].join(60)
            other.close()
        ledger.verify()
    for thread in threads:
        thread.join(60)

    assert errors == []
    assert len(counts) > 100


ALL: dict[str, Callable[[Ledger], Iterable[Recorded]]] = {
    "history": lambda ledger: ledger.history(),
    "history of the chat": lambda ledger: ledger.history("c"),
    "feed": lambda ledger: ledger.feed(0, follow=False),
    "feed of the chat": lambda ledger: ledger.feed(0, chat_id="c", follow=False),
}


@pytest.mark.parametrize("behind", [0, 3])
@pytest.mark.parametrize("reader", ALL)
def test_a_server_that_is_behind(reader: str, behind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives less than the index has seen: a majority is asked before that is called a loss, and nobody if none answers."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        for number in range(4):
            ledger.append("c", [user(str(number))])
        log: Any = store_behind(ledger).log
        read, read_stream, committed_position = log.read, log.read_stream, log.committed_position

        def old(page: list[Recorded]) -> list[Recorded]:
            return [recorded for recorded in page if recorded.position <= behind]

        def ask_majority() -> int:
            if not silent:
                monkeypatch.undo()
                return int(committed_position())
            silent.pop()
            msg = "no majority"
            raise LogUnavailableError(msg)

        silent = [1]
        monkeypatch.setattr(log, "read", lambda *args, **kwargs: old(read(*args, **kwargs)))
        monkeypatch.setattr(log, "read_stream", lambda *args, **kwargs: old(read_stream(*args, **kwargs)))
        monkeypatch.setattr(log, "committed_position", ask_majority)
        with pytest.raises(LogUnavailableError):
            list(ALL[reader](ledger))
        assert [1, 2, 3, 4, 5] == [recorded.position for recorded in ALL[reader](ledger)]
