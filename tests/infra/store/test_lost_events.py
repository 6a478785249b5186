"""An event that the log lost stops every reader that comes to it; none goes on without it."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.backup_world import block, rot
from tests.support.cli_world import run
from tests.support.custom_world import Words

import chatledger
from chatledger import ChainIntegrityError, Ledger, Recorded, user
from chatledger.infra.log.nats_server import preflight

OTHER = 9
"""The position of the last event of chat `b`."""


@pytest.fixture(autouse=True)
def an_old_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each block be an old one of a large log, which is not read before every start."""
    monkeypatch.setattr(preflight, "ALWAYS_READ_BYTES", 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two chats, closed cleanly: events of `a` at positions 1 to 7 and 10 to 14, of `b` at 8 and 9."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast", compression="none") as ledger:
        ledger.create_chat("a", "ada")
        for number in range(2, 8):
            ledger.append("a", [user(f"number {number}.")])
        ledger.create_chat("b", "ben")
        ledger.append("b", [user(f"number {OTHER}.")])
        for number in range(10, 15):
            ledger.append("a", [user(f"number {number}.")])
    return path


def lose(data: Path, position: int) -> None:
    """Flip a bit of the message at a position, so that the server does not give it any more."""
    raw = bytearray(block(data).read_bytes())
    raw[raw.index(f"number {position}.".encode()) + 2] ^= 4
    rot(block(data), bytes(raw))


def positions(events: Iterable[Recorded]) -> tuple[list[int], ChainIntegrityError | None]:
    """Where the events stand that a reader gives before it stops, and the error with which it does."""
    found: list[int] = []
    try:
        for recorded in events:
            found.append(recorded.position)  # noqa: PERF401 - they are kept when it raises
    except ChainIntegrityError as error:
        return found, error
    return found, None


async def _given(feed: Any, found: list[Recorded]) -> None:
    async for recorded in feed:
        found.append(recorded)  # noqa: PERF401 - as above


def async_feed(ledger: Ledger) -> Iterable[Recorded]:
    found: list[Recorded] = []

    async def read() -> None:
        async with (
            chatledger.open_async(ledger.location, durability="fast") as twin,
            twin.feed(0, follow=False) as feed,
        ):
            await _given(feed, found)

    try:
        asyncio.run(read())
    finally:
        yield from found


READERS: dict[str, Callable[[Ledger], Iterable[Recorded]]] = {
    "history": lambda ledger: ledger.history(),
    "history of the chat": lambda ledger: ledger.history("a"),
    "history, filtered": lambda ledger: ledger.history(topics={"message_appended"}),
    "history of its owner": lambda ledger: ledger.for_user("ada").history(),
    "history of the chat, of its owner": lambda ledger: ledger.for_user("ada").history("a"),
    "history in the past": lambda ledger: ledger.as_of(ledger.position).history(),
    "feed": lambda ledger: ledger.feed(0, follow=False),
    "feed of the chat": lambda ledger: ledger.feed(0, chat_id="a", follow=False),
    "feed, filtered": lambda ledger: ledger.feed(0, topics={"message_appended"}, follow=False),
    "feed, share": lambda ledger: ledger.feed(0, share=(0, 1), follow=False),
    "feed of its owner": lambda ledger: ledger.for_user("ada").feed(0, follow=False),
    "feed, named": lambda ledger: ledger.feed(name="reader", follow=False),
    "feed that follows": lambda ledger: ledger.feed(0),
    "feed, async": async_feed,
}


@pytest.mark.matrix
@pytest.mark.parametrize("lost", [2, 5, 7, 13])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_stops_at_a_lost_event(data: Path, reader: str, lost: int) -> None:
    """What stands before the lost event is given, then an error that names it: also when its chat has no later event."""
    lose(data, lost)
    with chatledger.open(data, durability="fast") as ledger:
        given, error = positions(READERS[reader](ledger))

    first = 2 if "filtered" in reader else 1
    others = [] if "of the" in reader or "owner" in reader else [OTHER] if "filtered" in reader else [8, OTHER]
    assert given == [at for at in [*range(first, 8), *others, *range(10, 15)] if at < lost]
    assert error is not None
    assert (error.position, error.chat_id) == (lost, "a")


@pytest.mark.parametrize(
    "reader", ["history", "feed", "feed, named", "feed, async", "history of its owner", "feed of its owner"]
)
def test_the_last_event_of_another_chat(data: Path, reader: str) -> None:
    """The hole is found although no later event of its chat shows it."""
    lose(data, OTHER)
    with chatledger.open(data, durability="fast") as ledger:
        given, error = positions(READERS[reader](ledger))

    assert max(given) < OTHER
    assert error is not None
    assert error.position == OTHER


@pytest.mark.matrix
@pytest.mark.parametrize("reader", ["history", "feed"])
@pytest.mark.parametrize("after", [4, 5, 12])
def test_a_reader_that_begins_in_the_middle(data: Path, reader: str, after: int) -> None:
    """One that begins right before the hole stops at once; one that begins behind it has not met it."""
    lose(data, 5)
    with chatledger.open(data, durability="fast") as ledger:
        for chat_id in (None, "a"):
            events = (
                ledger.history(chat_id, after=after)
                if reader == "history"
                else ledger.feed(after, chat_id=chat_id, follow=False)
            )
            given, error = positions(events)
            expected = [at for at in range(after + 1, 15) if chat_id is None or at not in {8, OTHER}]
            assert given == ([] if after == 4 else expected)
            assert (error is not None) == (after == 4)


def test_a_named_feed_stays_before_the_hole(data: Path) -> None:
    """Its position is kept before the hole, however often it is read, and it goes on when the event is there again."""
    whole = block(data).read_bytes()
    lose(data, 5)
    for _ in range(3):
        with chatledger.open(data, durability="fast") as ledger:
            with ledger.feed(name="reader", follow=False) as feed:
                _, error = positions(feed)
            assert error is not None
            assert [info.position for info in ledger.feeds()] == [4]
    block(data).write_bytes(whole)

    with chatledger.open(data, durability="fast") as ledger:
        assert positions(ledger.feed(name="reader", follow=False)) == (list(range(5, 15)), None)


@pytest.mark.parametrize(
    "command",
    [("log",), ("log", "a"), ("log", "--json"), ("watch", "--after", "0", "--limit", "14"), ("replay", "a")],
)
def test_commands(data: Path, command: tuple[str, ...]) -> None:
    """A command that reads the log ends with an error."""
    lose(data, 5)
    done = run(*command, at=data)

    assert done.exit_code != 0
    assert "position 5" in done.output


def test_a_custom_projection(data: Path) -> None:
    """A projection is not built without the event."""
    lose(data, OTHER)
    with pytest.raises(ChainIntegrityError):
        chatledger.open(data, durability="fast", projections=[Words()]).close()


def test_a_repeated_command(data: Path) -> None:
    """A command whose event is lost is not taken for another one."""
    with chatledger.open(data, compression="none") as ledger, ledger.context(command_id="once"):
        ledger.append("a", [user("number 15.")])
    with chatledger.open(data, durability="fast") as ledger:
        ledger.append("b", [user("number 16.")])
    lose(data, 15)
    with (
        chatledger.open(data, durability="fast") as ledger,
        ledger.context(command_id="once"),
        pytest.raises(ChainIntegrityError, match="position 15"),
    ):
        ledger.append("a", [user("number 15.")])


def test_nothing_is_given_of_half_a_commit(tmp_path: Path) -> None:
    """Messages that were written together are seen together: a reader ends before the commit of an event that is lost."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast", compression="none") as ledger:
        ledger.create_chat("a", "ada")
        ledger.append("a", [user(f"number {number}. {'x' * 200_000}") for number in range(2, 14)])
        ledger.append("a", [user("the next")])
        commit = [recorded.position for recorded in ledger.history("a") if recorded.event.rest]
    assert [2, 3] == commit, "one commit of three events"

    lose(path, 13)  # in the last of them
    with chatledger.open(path, durability="fast") as ledger:
        for read in (ledger.history(), ledger.history("a"), ledger.feed(0, follow=False)):
            given, error = positions(read)

            assert [1] == given
            assert error is not None
