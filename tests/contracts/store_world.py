"""The world of a ledger's contract: where its ledgers are, chats of a test's own, calls at the same moment."""

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import pytest
from tests.support.ledger_world import check_chat, text

import chatledger
from chatledger import HeadConflictError, Ledger, Recorded
from chatledger.infra.testing.story import tell_chat

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

ODD_IDS = [
    "a/b.c@d#e$f*g>h:i",
    ".",
    "..",
    "*",
    ">",
    " ",
    "a b\tc\nd",
    "🦜 жук 貓",
    "A",
    "a",
    "é",
    "e\N{COMBINING ACUTE ACCENT}",
    "x" * 2048,
    "ж" * 1024,
    "%2E",
    "_",
    "-",
]


class World:
    """Where the ledgers of one contract are."""

    def __init__(self, location: str, **options: Any) -> None:
        self.location, self.options = location, options
        self.is_durable = location != "memory:"
        self.ledger = self.open()

    def open(self) -> Ledger:
        return chatledger.open(self.location, **self.options)

    def close(self) -> None:
        self.ledger.close()


class Contract:
    """Each test uses chats and users of its own, so that all share one ledger, that of the fixture `world`."""

    @pytest.fixture
    def ledger(self, world: World) -> Ledger:
        return world.ledger

    @pytest.fixture
    def name(self) -> str:
        return uuid.uuid4().hex

    @pytest.fixture
    def chat(self, ledger: Ledger, name: str) -> Iterator[str]:
        """A new chat; whatever a test does to it, all promises hold afterwards."""
        ledger.create_chat(name, f"user {name}")
        yield name
        check_chat(ledger, name)


def try_append(ledger: Ledger, chat: str, content: str, head: str | None) -> str | None:
    """The id of the new head, or None when another writer was faster."""
    try:
        return ledger.append(chat, [text(content)], expected_head=head)[0].id
    except HeadConflictError:
        return None


def count_up(chat: chatledger.Chat) -> dict[str, Any]:
    return {"metadata": {"n": (chat.metadata or {}).get("n", 0) + 1}}


def metadata_of(ledger: Ledger, chat_id: str) -> dict[str, Any] | None:
    chat = ledger.get_chat(chat_id)
    return None if chat is None else chat.metadata


def each_raises(error: type[E], *calls: Callable[[], object], match: str | None = None) -> list[E]:
    """Each of the calls raises that error; the errors are returned."""
    errors: list[E] = []
    for call in calls:
        with pytest.raises(error, match=match) as caught:
            call()
        errors.append(caught.value)
    return errors


def anything(value: Any) -> Any:
    """Pass a value that the type checkers would refuse, because it is what a test is about."""
    return value


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """The answers of several threads that begin at the same moment; the first error is raised."""
    barrier = threading.Barrier(count)
    answers: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            answers[number] = work(number)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "the threads did not end"
    return [answers[number] for number in range(count)]


def play(ledger: Ledger, prefix: str) -> list[dict[str, Any]]:
    """Tell the story of a chat, and return what the history says of it, without what differs from run to run."""
    tell_chat(ledger, prefix)
    events = [event for event in ledger.feed(0, follow=False) if event.chat_id.startswith(prefix)]
    return [_plain(event, prefix) for event in events]


def _plain(event: Recorded, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = event.to_dict()
    for name in ("position", "event_id", "occurred_at", "hash", "previous_hash"):
        del found[name]
    payload = found["payload"]
    for name in ("branch_id", "checkpoint_id", "created_at", "digest", "first_position", "link_id"):
        payload.pop(name, None)
    for message in payload.get("messages", ()):
        if message["created_at"] != 7:
            del message["created_at"]
        if "redacted" in message:
            message["redacted"] = message["redacted"]["reason"]
    return cast("dict[str, Any]", _replaced({**found, "rest": event.event.rest}, prefix))


def _replaced(value: Any, prefix: str) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "")
    if isinstance(value, list | tuple):
        return [_replaced(item, prefix) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _replaced(item, prefix) for key, item in cast("dict[str, Any]", value).items()}
    return value
