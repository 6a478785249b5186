"""The limits in `docs/reference/limits.md` are those of the code, and what exceeds one is refused with the error that it names."""

import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.infra.test_ledger_world import text

import chatledger
from chatledger import ChatledgerError, Ledger, NewMessage
from chatledger.domain import codec, large_data, rules
from chatledger.domain.search import query
from chatledger.infra import store
from chatledger.infra.feed import filter as feed_filter
from chatledger.infra.jetstream import subjects
from chatledger.infra.log import compression
from chatledger.infra.log.cipher import UnreadableRecordError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
SMALL = 32 * 1024
CONSTANTS = {
    "an id or a name, in bytes of UTF-8": rules.MAX_ID_BYTES,
    "nesting of data and metadata": rules.MAX_JSON_DEPTH,
    "an event: a message with its metadata, without its data where these are large": codec.MAX_EVENT_BYTES,
    "data of a message": large_data.MAX_MESSAGE_BYTES,
    "events of one call": store.MAX_COMMIT_EVENTS,
    "name of a stream": subjects.MAX_NAME_CHARS,
    "a compressed record, unpacked": compression.MAX_BYTES,
    "words of a search": query.MAX_QUERY_TERMS,
    "shares of a feed": feed_filter.MAX_SHARES,
}


def rows() -> Iterator[list[str]]:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| what", "| ---")):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:", max_message_bytes=large_data.LARGE_BYTES) as ledger:
        ledger.create_chat("c", "u")
        yield ledger


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_the_numbers_are_those_of_the_code() -> None:
    shown = {row[0]: int(re.sub(r"\D", "", row[1].split(" ")[0])) for row in rows()}
    assert shown == CONSTANTS


def limit(what: str) -> tuple[int, type[Exception]]:
    """The constant and the class of the error that the page names."""
    (row,) = [row for row in rows() if row[0].startswith(what)]
    error: type[Exception] = getattr(chatledger, row[2].strip("`"))
    return CONSTANTS[row[0]], error


def refused(error: type[Exception], call: Callable[[], object], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert isinstance(caught.value, ChatledgerError)


def test_an_id(ledger: Ledger) -> None:
    most, error = limit("an id")
    ledger.create_chat("x" * most, "u")
    ledger.create_branch("c", "b" * most, ledger.append("c", [text("one")])[0].id)
    refused(error, lambda: ledger.create_chat("x" * (most + 1), "u"), "at most 2,048")
    refused(error, lambda: ledger.append("c", [text("x", id="é" * (most // 2 + 1))]), "at most 2,048")


def test_nesting(ledger: Ledger) -> None:
    most, error = limit("nesting")
    ledger.create_chat("shallow", "u", metadata={"x": nested(most - 1)})
    refused(error, lambda: ledger.create_chat("deep", "u", metadata={"x": nested(most)}), "200 levels")
    refused(error, lambda: ledger.create_chat("bottomless", "u", metadata={"x": nested(100_000)}), "200 levels")
    message = NewMessage("user", nested(most + 1))
    refused(error, lambda: ledger.append("c", [message]), "200 levels")


def test_an_event(ledger: Ledger) -> None:
    most, error = limit("an event")
    refused(error, lambda: ledger.create_chat("large", "u", metadata={"x": "y" * most}), "1,048,576")
    assert ledger.get_chat("large") is None


def test_data_of_a_message(ledger: Ledger) -> None:
    """With a lower limit than the default: 64 MiB take a while."""
    _, error = limit("data of a message")
    refused(error, lambda: ledger.append("c", [text("x" * large_data.LARGE_BYTES)]), f"{large_data.LARGE_BYTES:,}")


def test_a_stream() -> None:
    most, error = limit("name of a stream")
    refused(error, lambda: chatledger.open(f"nats://127.0.0.1:1/{'s' * (most + 1)}"), "1 to 200")


def test_a_compressed_record() -> None:
    """64 MiB and one byte, which take 6 kB compressed; and some bytes that claim to be more."""
    zstandard = pytest.importorskip("zstandard")
    most, _ = limit("a compressed record")
    frame = zstandard.ZstdCompressor(level=1).compress(bytes(most + 1))[4:]
    assert len(frame) < most / 1000
    record = compression.MARK + zlib.crc32(frame).to_bytes(4, "little") + frame
    with pytest.raises(UnreadableRecordError, match="67,108,864"):
        compression.ZstdCompressor().decompress(record)


def test_shares_of_a_feed(ledger: Ledger) -> None:
    most, error = limit("shares")
    ledger.feed(share=(0, most)).close()
    refused(error, lambda: ledger.feed(share=(0, most + 1)), "4,?096")


def test_words_of_a_search(ledger: Ledger) -> None:
    """Never an error: what is beyond the limit is left out."""
    most = CONSTANTS["words of a search"]
    ledger.append("c", [text("needle")])
    assert ledger.search(" OR ".join(["needle"] * (most + 10)))
