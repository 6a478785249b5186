"""The limits of `docs/reference/limits.md`: what fits is taken, one more is refused, and nothing is written."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import chatledger
from chatledger import InvalidValueError, Ledger, NewMessage, user
from chatledger.domain.limits import (
    MAX_COMMIT_EVENTS,
    MAX_ID_BYTES,
    MAX_JSON_DEPTH,
    MAX_MEMBERS,
    MAX_METADATA_BYTES,
    MAX_METADATA_KEYS,
    MAX_TITLE_BYTES,
)
from chatledger.domain.log.codec import MAX_EVENT_BYTES
from chatledger.domain.search.query import MAX_QUERY_TERMS
from chatledger.errors import PayloadTooLargeError
from chatledger.infra.ledger.items.item_store import ItemStore


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        opened.create_chat("c", "u")
        opened.append("c", [user("one", id="m")])
        yield opened


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


def metadata_of(size: int) -> dict[str, Any]:
    """Metadata that take so many bytes in msgpack."""
    return {"k": "x" * (size - 8)}  # one for the object, two for the key, five for the length of the text


CASES: dict[str, tuple[Callable[[Ledger, int], object], int]] = {
    "chat id": (lambda ledger, size: ledger.create_chat("é" * (size // 2) + "x" * (size % 2), "u"), MAX_ID_BYTES),
    "owner": (lambda ledger, size: ledger.create_chat("d", "u" * size), MAX_ID_BYTES),
    "title": (lambda ledger, size: ledger.update_chat("c", title="t" * size), MAX_TITLE_BYTES),
    "title of a new chat": (lambda ledger, size: ledger.create_chat("d", "u", title="t" * size), MAX_TITLE_BYTES),
    "metadata": (lambda ledger, size: ledger.update_chat("c", metadata=metadata_of(size)), MAX_METADATA_BYTES),
    "metadata of a new chat": (
        lambda ledger, size: ledger.create_chat("d", "u", metadata=metadata_of(size)),
        MAX_METADATA_BYTES,
    ),
    "metadata of an annotation": (
        lambda ledger, size: ledger.annotate("c", "m", metadata=metadata_of(size)),
        MAX_METADATA_BYTES,
    ),
    "keys of metadata": (
        lambda ledger, count: ledger.update_chat("c", metadata={str(key): key for key in range(count)}),
        MAX_METADATA_KEYS,
    ),
    "members": (
        lambda ledger, count: ledger.create_chat("d", "u", members={f"m{member}": "reader" for member in range(count)}),
        MAX_MEMBERS,
    ),
    "branch": (lambda ledger, size: ledger.create_branch("c", "b" * size, "m"), MAX_ID_BYTES),
    "checkpoint": (lambda ledger, size: ledger.set_checkpoint("c", "k" * size, "m"), MAX_ID_BYTES),
    "role": (lambda ledger, size: ledger.append("c", [NewMessage("r" * size, None)]), MAX_ID_BYTES),
    "message id": (lambda ledger, size: ledger.append("c", [user("two", id="i" * size)]), MAX_ID_BYTES),
    "levels": (lambda ledger, levels: ledger.append("c", [NewMessage("user", nested(levels))]), MAX_JSON_DEPTH),
}


@pytest.mark.parametrize("name", CASES)
def test_a_limit(name: str, ledger: Ledger) -> None:
    attempt, limit = CASES[name]
    before = ledger.last_position()
    with pytest.raises(InvalidValueError, match=f"{limit:,}"):
        attempt(ledger, limit + 1)
    assert ledger.last_position() == before
    attempt(ledger, limit)
    assert ledger.last_position() > before


@pytest.mark.parametrize("size", [10 * MAX_METADATA_BYTES, MAX_METADATA_BYTES + 1])
def test_large_metadata_make_no_rows(size: int, ledger: Ledger) -> None:
    """Each key at the top is a row of several lists, so few bytes would be many rows."""
    keys = {f"{key:07}": key for key in range(size // 12)}
    with pytest.raises(InvalidValueError, match="keys"):
        ledger.create_chat("d", "u", metadata=keys)
    assert [chat.id for chat in ledger.list_chats()] == ["c"]


def test_an_event_and_a_message_have_their_limits(ledger: Ledger) -> None:
    before = ledger.last_position()
    with chatledger.open("memory:", max_message_bytes=300_000) as small:
        small.create_chat("c", "u")
        with pytest.raises(PayloadTooLargeError, match="300,000"):
            small.append("c", [NewMessage("user", "x" * 300_000)])
        assert small.append("c", [NewMessage("user", "x" * 299_000)])
    large_key = {f"k{number}": "x" * 200_000 for number in range(MAX_EVENT_BYTES // 200_000 + 1)}
    assert ledger.append("c", [NewMessage("user", large_key)])
    assert ledger.last_position() == before + 1


def test_the_events_of_one_call_have_a_limit(ledger: Ledger) -> None:
    """Beyond it the call is refused as a whole; messages of fewer bytes share events."""
    before = ledger.last_position()
    with chatledger.open("memory:", max_event_bytes=32 * 1024) as small:
        small.create_chat("c", "u")
        each = "x" * (15 * 1024)
        with pytest.raises(InvalidValueError, match=f"at most {MAX_COMMIT_EVENTS:,}"):
            small.append("c", [NewMessage("user", each) for _ in range(MAX_COMMIT_EVENTS + 1)])
        assert small.last_position() == 1
    assert len(ledger.append("c", [user(str(number)) for number in range(5000)])) == 5000
    assert before < ledger.last_position() < before + 5


def test_a_long_query_is_cut(ledger: Ledger) -> None:
    words = ["zero"] * MAX_QUERY_TERMS
    assert ledger.search(" OR ".join([*words[1:], "one"]), chat_id="c")
    assert not ledger.search(" OR ".join([*words, "one"]), chat_id="c")


@pytest.mark.parametrize("number", [2**63, 2**64, 10**400])
@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger, number: next(ledger.feed(after=number, follow=False), None),
        lambda ledger, number: list(ledger.history(after=number)),
        lambda ledger, number: list(ledger.history("c", up_to=number)),
        lambda ledger, number: ledger.as_of(number),
        lambda ledger, number: ledger.sync(number, timeout_s=0),
        lambda ledger, number: ledger.wait(number, timeout_s=0),
        lambda ledger, number: ledger.update_chat("c", ttl_seconds=number),
        lambda ledger, number: ItemStore(ledger).put(("a",), "k", {}, ttl_seconds=number),
    ],
)
def test_a_number_that_no_row_can_hold_is_refused(
    ledger: Ledger, ask: Callable[[Ledger, int], Any], number: int
) -> None:
    """Where it is asked with, not by what packs it."""
    with pytest.raises(InvalidValueError):
        ask(ledger, number)


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger, number: ledger.get_messages("c", limit=number),
        lambda ledger, number: ledger.list_chats(limit=number),
        lambda ledger, number: ledger.search("one", limit=number),
        lambda ledger, number: ledger.list_chats(offset=number) == [],
        lambda ledger, number: list(ledger.search("one", offset=number)) == [],
        lambda ledger, number: list(ItemStore(ledger).list(("a",), limit=number)) == [],
    ],
)
def test_a_limit_above_all_that_there_may_be_is_none(ledger: Ledger, ask: Callable[[Ledger, int], Any]) -> None:
    assert ask(ledger, 10**400)


@pytest.mark.parametrize("timeout_s", [1e12, 1e300, float("inf"), 10**400])
def test_a_time_that_no_clock_has_is_waited_for(ledger: Ledger, timeout_s: float) -> None:
    """As long as the system can wait; here somebody writes meanwhile."""
    position = ledger.last_position()
    writer = threading.Timer(0.05, ledger.append, ("c", [user("late")]))
    writer.start()

    assert ledger.wait(position, timeout_s=timeout_s)
    assert ledger.sync(position + 1, timeout_s=timeout_s) > position
    writer.join()
