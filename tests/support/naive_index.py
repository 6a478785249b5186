"""Indexes made from events, everything they answer, and the same answers worked out the plain way."""

import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.stories import Story

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.state import BranchRecord
from chatledger.domain.values import Chat, Message
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.lists import ChatList
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.generations import Generation
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import Transaction

MAP_BYTES = 16 * 1024 * 1024
IDENTITY = "log-1"
_TABLES = ("meta", "chat_ids", "message_ids", "branch_ids", "order", "rows")


def reader(events: Sequence[Recorded], page: int = 1000) -> Callable[[int], list[Recorded]]:
    """Pages of a log; whole commits."""

    def read(after: int) -> list[Recorded]:
        rest = [event for event in events if event.position > after]
        size = page
        while size < len(rest) and rest[size - 1].event.rest:
            size += 1
        return rest[:size]

    return read


@contextmanager
def opened(
    root: Path, events: Sequence[Recorded] = (), *, identity: str = IDENTITY, map_bytes: int = MAP_BYTES
) -> Generator[Index]:
    """An index that serves; built from the events when there is none yet."""
    index = Index(root, identity=identity, map_bytes=map_bytes)
    try:
        if index.open() is not None:
            index.rebuild(reader(events), unless_open=True)
        yield index
    finally:
        index.close()


@contextmanager
def indexed(index: Index, chat_id: str) -> Generator[IndexedChat]:
    """One chat at this moment."""
    with index.snapshot() as snapshot:
        yield snapshot.chat(chat_id)


def place_of(chat: IndexedChat, message_id: str) -> Place:
    """Where a message is that must be there."""
    place = chat.place(message_id)
    assert place is not None
    return place


READABLE = [
    (f"user{n}", ChatList(None if m is None else f"user{m}", entries, is_by_creation, is_ascending, f"user{n}"))
    for n in range(4)
    for m in (None, 0, 1)
    for entries, is_by_creation in (
        ((), False),
        ((), True),
        ((("flag", True),), False),
        ((("flag", True), ("n", 1)), False),
    )
    for is_ascending in (False, True)
]
"""Lists of what a user may read: of all owners and of one, by change and by creation, with entries, from both ends."""


def answers(index: Index, chat_ids: Sequence[str]) -> dict[str, Any]:
    """Everything that can be asked, as values."""
    with index.snapshot() as snapshot:
        return {
            "list": snapshot.list_chats(),
            "lists": [snapshot.list_chats(ChatList(user_id=f"user{n}")) for n in range(3)],
            "by creation": [
                snapshot.list_chats(ChatList(user_id=user_id, is_by_creation=True)) for user_id in (None, "user0")
            ],
            "readable": [snapshot.list_chats(chats) for _, chats in READABLE],
            "numbers": [snapshot.chat_nos(reader=f"user{n}") for n in range(4)],
            "entries": [
                snapshot.list_chats(ChatList(entries=(entry,)))
                for entry in [("flag", True), ("flag", False), *(("n", n) for n in range(8))]
            ],
            "branches by id": [
                snapshot.branch(branch.id) for chat_id in chat_ids for branch in snapshot.chat(chat_id).branches()
            ],
            **{chat_id: chat_answers(snapshot.chat(chat_id)) for chat_id in chat_ids},
        }


def chat_answers(chat: IndexedChat) -> dict[str, Any]:
    """Everything that can be asked of one chat."""
    if chat.chat is None:
        return {"chat": None, "tombstone": chat.tombstone, "branches": chat.branches(), "marks": chat.checkpoints()}
    ordered = [message for _, message in sorted(chat.chains.all_messages(), key=lambda item: item[0])]
    return {
        "chat": chat.chat,
        "record": chat.record,
        "profile": chat.profile,
        "tombstone": chat.tombstone,
        "branches": chat.branches(),
        "branches by id": [chat.branch_with_id(branch.id) for branch in chat.branches()],
        "marks": chat.checkpoints(),
        "members": (chat.members(), [chat.role_of(f"user{n}") for n in range(4)]),
        "messages": ordered,
        "chains": {message.id: chat.chains.chain(place_of(chat, message.id)) for message in ordered},
        "names": {branch.name: chat.branches_named_after(branch.name) for branch in chat.branches()},
        "seen": chat.branches_seen(),
        "records": {branch.name: tail_free(chat.branch_record(branch.name)) for branch in chat.branches()},
        "leaves": {message.id: chat.newest_leaf(message.id) for message in ordered},
    }


def tail_free(record: BranchRecord | None) -> tuple[object, ...]:
    """A branch as the fold knows it, without what the index adds."""
    assert record is not None
    return record.id, record.name, record.head_message_id, record.created_at, record.seen


def folded_answers(chat: ReplayedChat) -> dict[str, Any]:
    """The same, from a chat replayed in memory."""
    if chat.chat is None:
        return {"chat": None, "tombstone": chat.tombstone, "branches": [], "marks": []}
    return {
        "chat": chat.chat,
        "record": chat.record,
        "profile": chat.profile,
        "tombstone": chat.tombstone,
        "branches": chat.branches,
        "branches by id": chat.branches,
        "marks": chat.checkpoints,
        "members": (chat.members(), [chat.role_of(f"user{n}") for n in range(4)]),
        "messages": chat.messages,
        "chains": {message.id: chat.get_chain(message.id) for message in chat.messages},
        "names": {branch.name: chat.branches_named_after(branch.name) for branch in chat.branches},
        "seen": chat.branches_seen(),
        "records": {branch.name: tail_free(chat.branch_record(branch.name)) for branch in chat.branches},
        "leaves": {message.id: chat.newest_leaf(message.id) for message in chat.messages},
    }


def story_answers(story: Story, chat_ids: Sequence[str]) -> dict[str, Any]:
    """The same, from chats replayed in memory, with lists filtered and sorted the plain way."""
    chats = [chat for chat_id in chat_ids if (chat := story.chat(chat_id).chat) is not None]
    created = sorted(chats, key=lambda chat: (-chat.created_at, chat.id.encode()))
    chats.sort(key=lambda chat: (-chat.updated_at, chat.id.encode()))

    def has(metadata: dict[str, Any] | None, key: str, value: object) -> bool:
        return metadata is not None and key in metadata and (type(metadata[key]), metadata[key]) == (type(value), value)

    def readable(reader: str, wanted: ChatList) -> list[Chat]:
        found = [
            chat
            for chat in (created if wanted.is_by_creation else chats)
            if story.chat(chat.id).role_of(reader) is not None
            and wanted.user_id in {None, chat.user_id}
            and all(has(chat.metadata, *entry) for entry in wanted.entries)
        ]
        return found[::-1] if wanted.is_ascending else found

    numbers = {chat.id: record.first_position for chat in chats if (record := story.chat(chat.id).record)}
    return {
        "list": chats,
        "readable": [readable(*one) for one in READABLE],
        "numbers": [[numbers[chat.id] for chat in readable(f"user{n}", ChatList())] for n in range(4)],
        "lists": [[chat for chat in chats if chat.user_id == f"user{n}"] for n in range(3)],
        "by creation": [[chat for chat in created if user_id in {None, chat.user_id}] for user_id in (None, "user0")],
        "entries": [
            [chat for chat in chats if has(chat.metadata, *entry)]
            for entry in [("flag", True), ("flag", False), *(("n", n) for n in range(8))]
        ],
        "branches by id": [branch for chat_id in chat_ids for branch in story.chat(chat_id).branches],
        **{chat_id: folded_answers(story.chat(chat_id)) for chat_id in chat_ids},
    }


def rows(index: Index) -> dict[str, list[tuple[bytes, bytes]]]:
    """Every row of every table but `meta`."""
    return {name: found for name, found in all_rows(index).items() if name != "meta"}


def live(index: Index) -> Generation:
    """The generation that serves, to look into its tables."""
    generation = index._live  # pyright: ignore[reportPrivateUsage] (a white-box check)
    assert generation is not None
    return generation


def all_rows(index: Index) -> dict[str, list[tuple[bytes, bytes]]]:
    """Every row of every table."""
    generation = live(index)
    tables = generation.tables
    with generation.reading() as txn:
        return {name: dump(txn, getattr(tables, name)) for name in _TABLES}


def dump(txn: Transaction, table: Any) -> list[tuple[bytes, bytes]]:
    """Every row of a table."""
    return [(bytes(key), bytes(value)) for key, value in txn.cursor(table)]


class NaiveTree:
    """Messages in a dictionary, and every question answered by walking."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = {message.id: message for message in messages}

    def chain(self, message_id: str) -> list[Message]:
        """Root first."""
        found: list[Message] = []
        at: str | None = message_id
        while at is not None:
            found.append(self.messages[at])
            at = self.messages[at].parent_id
        return found[::-1]

    def children(self, parent_id: str | None) -> list[str]:
        """In the order of their creation."""
        return [message.id for message in self.messages.values() if message.parent_id == parent_id]

    def common(self, a: str, b: str) -> str | None:
        """The deepest message of both chains."""
        mine = {message.id for message in self.chain(a)}
        return next((message.id for message in reversed(self.chain(b)) if message.id in mine), None)


PRELUDE = """
import sys
from pathlib import Path
from chatledger.projections.generations import Generation
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import Environment
root = Path(sys.argv[1])
def say(text):
    print(text, flush=True)
def hear():
    return sys.stdin.readline().strip()
"""


@contextmanager
def process(script: str, root: Path) -> Generator["subprocess.Popen[str]"]:
    """Another process that runs `script`, with `root`, `say` and `hear`; killed at the end if it still runs."""
    command = [sys.executable, "-c", PRELUDE + script, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def ask(child: "subprocess.Popen[str]", line: str | None = None) -> str:
    """Send a line, if one is given, and wait for the next line of the answer."""
    assert child.stdin is not None
    assert child.stdout is not None
    if line is not None:
        child.stdin.write(line + "\n")
        child.stdin.flush()
    return child.stdout.readline().strip()
