"""Ledgers for tests: of every kind, in this process and in others, and what must hold of them."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Self, cast

import msgspec
import pytest
from tests.support.page_verifier import hash_of_event

import chatledger
from chatledger import (
    ANY,
    AccessDeniedError,
    ChatledgerError,
    ConfigurationError,
    Ledger,
    LedgerView,
    LogUnavailableError,
    Merge,
    Message,
    NewMessage,
    PageEntry,
    Recorded,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.infra.ledger.port import store_of
from chatledger.infra.store.store import Store

ROOT: Final = Path(__file__).resolve().parents[2]
ANYWHERE: Final = "$any"
"""How `chatledger.ANY` is written in a call to another process."""


Outcome = list[Any]
"""`["ok", answer]` or `["error", class, message]`, in JSON values."""


def text(content: str, *, id: str | None = None, parent_id: str | None = None) -> NewMessage:  # noqa: A002 - the field's name
    """A message whose data is plain text."""
    return NewMessage("user", content, id=id, parent_id=parent_id)


def stored(ledger: Ledger, message_id: str) -> Message:
    """A message that is there."""
    found = ledger.get_message(message_id)
    assert found is not None
    return found


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def texts(ledger: Ledger, chat_id: str, branch: str | None = None) -> list[str]:
    return [message.text for message in ledger.get_messages(chat_id, branch=branch)]


def length(ledger: Ledger, chat_id: str | None = None) -> int:
    """Number of events of the log, of one chat or of all."""
    return sum(1 for _ in ledger.history(chat_id))


def check_chat(ledger: Ledger, chat_id: str) -> ReplayedChat:
    """Every promise about one chat, on the index as it is and the log as it is; returns the fold of the log."""
    events = list(ledger.history(chat_id))
    check_stream(ledger, events)
    replayed = ReplayedChat(chat_id, events)
    assert replayed.chat == ledger.get_chat(chat_id)
    assert replayed.branches == ledger.list_branches(chat_id)
    assert replayed.checkpoints == ledger.list_checkpoints(chat_id)
    assert replayed.members() == ledger.members(chat_id)
    if replayed.chat is None:
        assert ledger.get_active_branch(chat_id) is None
        assert replayed.branches == []
        return replayed
    _check_pointers(ledger, replayed)
    _check_messages(ledger, replayed)
    return replayed


def check_stream(ledger: Ledger, events: list[Recorded]) -> None:
    """Versions without holes, but for what a tombstone explains; each event names the hash of the one before it."""
    version, digest, position = 0, b"", 0
    for recorded in events:
        assert recorded.position > position
        if recorded.type != "chat_deleted":
            assert recorded.version == version + 1
            assert recorded.event.previous_hash == digest
        assert recorded.version > version
        state = store_of(ledger).bytes_at([recorded.position])[recorded.position]
        assert recorded.hash == hash_of_event(state)
        version, digest, position = recorded.version, recorded.hash, recorded.position
    assert len({recorded.event_id for recorded in events}) == len(events)


def _check_pointers(ledger: Ledger, replayed: ReplayedChat) -> None:
    branches, checkpoints = replayed.branches, replayed.checkpoints
    assert [branch.is_active for branch in branches].count(True) == 1
    active = ledger.get_active_branch(replayed.chat_id)
    assert active == next(branch for branch in branches if branch.is_active)
    assert len({branch.name for branch in branches}) == len(branches)
    assert len({branch.id for branch in branches}) == len(branches)
    assert len({checkpoint.name for checkpoint in checkpoints}) == len(checkpoints)
    for branch in branches:
        assert ledger.get_branch(replayed.chat_id, branch.name) == branch
        assert ledger.get_branch(id=branch.id) == ledger.get_branch(replayed.chat_id, id=branch.id) == branch
        chain = ledger.get_messages(replayed.chat_id, branch=branch.name)
        expected = [] if branch.head_message_id is None else replayed.get_chain(branch.head_message_id)
        assert expected == chain
        assert len(chain) == branch.message_count
    for checkpoint in checkpoints:
        assert replayed.has_message(checkpoint.message_id)
        assert ledger.get_checkpoint(replayed.chat_id, checkpoint.name) == checkpoint


def _check_messages(ledger: Ledger, replayed: ReplayedChat) -> None:
    messages = replayed.messages
    seen: set[str] = set()
    children: dict[str | None, list[Message]] = {}
    for message in messages:
        assert message.chat_id == replayed.chat_id
        # Parents stand earlier in the log: there can be no cycle, and no edge to another chat.
        assert message.parent_id is None or message.parent_id in seen
        assert seen.issuperset(message.merged_from)
        assert message.id not in seen
        seen.add(message.id)
        children.setdefault(message.parent_id, []).append(message)
    for message in messages:
        assert ledger.get_message(message.id) == message
        below = children.get(message.id, [])
        assert ledger.children(message.id) == below
        assert ledger.has_children(message.id) == bool(below)
        assert ledger.siblings(message.id) == [other for other in children[message.parent_id] if other != message]
    heads = [branch.head_message_id for branch in replayed.branches if branch.head_message_id is not None]
    for a, b in combinations(heads[:4], 2):
        base = ledger.merge_base(a, b)
        assert (None if base is None else base.id) == replayed.merge_base(a, b) == replayed.merge_base(b, a)
    for message in messages[-3:]:
        assert ledger.get_chain(message.id) == replayed.get_chain(message.id)
        check_versions(ledger, replayed, message)
    check_pages(ledger, replayed)
    graph = ledger.graph(replayed.chat_id)
    assert {node.id: node.parent_id for node in graph.nodes} == {m.id: m.parent_id for m in messages}
    assert len(graph.nodes) == len(messages)


def check_versions(ledger: Ledger | LedgerView, replayed: ReplayedChat, message: Message) -> None:
    """The versions of a message, and the branches that have it, as a walk over all messages finds them."""
    family = [other.id for other in replayed.messages if other.parent_id == message.parent_id]
    heads = [(branch, branch.head_message_id) for branch in replayed.branches_seen()]
    chains = [(branch, [] if head is None else ids(replayed.get_chain(head))) for branch, head in heads]
    assert chains[0][0].is_active
    assert ledger.branches_of(message.id) == [branch for branch, chain in chains if message.id in chain]
    shown = next((one for _, chain in chains for one in family if one in chain), None)
    versions = ledger.versions(message.id)
    assert versions.ids == family
    assert versions.shown == shown


def check_pages(ledger: Ledger | LedgerView, replayed: ReplayedChat, limit: int = 3) -> None:
    """The pages of the active branch are its chain, and each message is one of its versions."""
    children: dict[str | None, list[str]] = {}
    for message in replayed.messages:
        children.setdefault(message.parent_id, []).append(message.id)
    entries: list[PageEntry] = []
    before: str | None = None
    while True:
        page = ledger.get_page(replayed.chat_id, limit=limit, before=before)
        assert len(page.entries) == limit or page.before is None
        entries[:0] = page.entries
        before = page.before
        if before is None:
            break
    assert [entry.message for entry in entries] == ledger.get_messages(replayed.chat_id)
    for entry in entries:
        assert entry.versions.ids == children[entry.message.parent_id]
        assert entry.versions.shown == entry.message.id


class HeldLog:
    """Holds appends in their worker thread, before or after they write, until they are let go."""

    def __init__(self, ledger: chatledger.Ledger, when: str) -> None:
        self.log = internals(ledger).log
        self.reached, self.go = threading.Event(), threading.Event()
        append = self.log.append

        def held(*args: Any, **kwargs: Any) -> list[int]:
            if when == "before":
                self.hold()
            positions: list[int] = append(*args, **kwargs)
            if when == "after":
                self.hold()
            return positions

        self.log.append = held

    def hold(self) -> None:
        del self.log.append  # only the first one
        self.reached.set()
        assert self.go.wait(60)


def check_lists(ledger: Ledger, user_id: str, chat_ids: set[str]) -> None:
    """The list of a user's chats has just these, newest first, ties by id, and pages tile it."""
    chats = ledger.list_chats(user_id=user_id)
    assert {chat.id for chat in chats} == chat_ids
    assert len(chats) == len(chat_ids)
    assert chats == sorted(chats, key=lambda chat: (-chat.updated_at, chat.id))
    assert chats == [ledger.get_chat(chat.id) for chat in chats]
    for start in range(len(chats)):
        assert ledger.list_chats(user_id=user_id, limit=1, offset=start) == chats[start : start + 1]
        assert ledger.list_chats(user_id=user_id, after=chats[start]) == chats[start + 1 :]


def snapshot(ledger: Ledger, chat_ids: list[str]) -> list[Any]:
    """Everything a ledger says about some chats, to be compared with what it or another one says."""
    return [
        [
            ledger.get_chat(chat_id),
            ledger.list_branches(chat_id),
            ledger.list_checkpoints(chat_id),
            ledger.graph(chat_id),
            [ledger.get_messages(chat_id, branch=branch.name) for branch in ledger.list_branches(chat_id)],
            [ledger.get_message(node.id) for node in ledger.graph(chat_id).nodes],
            [(ledger.versions(node.id), ledger.branches_of(node.id)) for node in ledger.graph(chat_id).nodes],
        ]
        for chat_id in chat_ids
    ]


def internals(ledger: Ledger) -> Any:
    """The store behind a ledger, for tests that look inside."""
    return cast("Any", ledger)._store


def store_behind(ledger: Ledger) -> Store:
    """The same with its type, of a ledger of all users."""
    return store_of(ledger).whole("repair")


@contextlib.contextmanager
def lagging(ledger: Ledger) -> Generator[None]:
    """The ledger does not take in by itself what others write, as when events are slow to arrive."""
    follower, is_over = internals(ledger)._follower, threading.Event()
    take_in = follower._take_in

    def take_in_later(position: int) -> None:
        is_over.wait()
        take_in(position)

    follower._take_in = take_in_later
    try:
        yield
    finally:
        del follower._take_in
        is_over.set()


@contextlib.contextmanager
def index_held(ledger: Ledger) -> Generator[Callable[[], None]]:
    """The index takes in nothing, though the log does, until the function that this gives is called: another one writes to it."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold(_generation: object, _txn: object) -> None:
        is_held.set()
        is_over.wait()

    holder = threading.Thread(target=internals(ledger).index.update, args=(hold,))
    holder.start()
    is_held.wait()
    try:
        yield is_over.set
    finally:
        is_over.set()
        holder.join()


def perform(ledger: Ledger, method: str, args: list[Any], kwargs: Mapping[str, Any]) -> Outcome:
    """The outcome of a method, called with JSON values: messages are objects, `ANYWHERE` is `chatledger.ANY`."""
    options = dict(kwargs)
    command_id = options.pop("command_id", None)
    try:
        with ledger.context(command_id=command_id):
            function: Callable[..., Any] = _SPECIAL.get(method) or getattr(Ledger, method)
            answer = function(ledger, *map(_revive, args), **{name: _revive(value) for name, value in options.items()})
    except ChatledgerError as error:
        return ["error", type(error).__name__, str(error)]
    return ["ok", msgspec.to_builtins(answer)]


def _revive(value: Any) -> Any:
    if value == ANYWHERE:
        return ANY
    if isinstance(value, list):
        return [msgspec.convert(one, NewMessage) if isinstance(one, dict) else one for one in cast("list[Any]", value)]
    return value


def _storm(ledger: Ledger, name: str, chat_ids: list[str], count: int) -> int:
    """Append `count` messages to the chats in turn."""
    for number in range(count):
        ledger.append(chat_ids[number % len(chat_ids)], [text(f"{name} {number}", id=f"{name}-{number}")])
    return count


def count_up(ledger: Ledger, chat_id: str, count: int) -> int:
    """Count a number in the metadata of a chat up, so many times."""
    for _ in range(count):
        ledger.update_chat(
            chat_id, updater=lambda chat: {"metadata": {"n": (chat.metadata or {})["n"] + 1}}, timeout_s=60
        )
    return count


def _forever(ledger: Ledger, name: str, chat_id: str) -> None:
    """Write until killed, and print what each commit was as soon as it is acknowledged."""
    large = "x" * 600_000  # two of them are two events of one commit
    number = 0
    while True:
        pair = [f"{name}-{number}-a", f"{name}-{number}-b"]
        content = large if number % 4 == 3 else "small"
        print(json.dumps(["begun", pair]), flush=True)
        ledger.append(chat_id, [text(f"{content} {message_id}", id=message_id) for message_id in pair])
        print(json.dumps(["acknowledged", pair]), flush=True)
        number += 1


def _current(ledger: Ledger) -> int:
    """How far a ledger is after it caught up."""
    return ledger.sync()


def _positions(ledger: Ledger, after: int, count: int) -> list[int]:
    """The positions of the next events of a feed that waits for them."""
    feed = ledger.feed(after)
    return [next(feed).position for _ in range(count)]


def refused(
    location: str | Path,
    error: type[AccessDeniedError | ConfigurationError | LogUnavailableError],
    match: str | None = None,
    **options: Any,
) -> None:
    """Opening raises that error, and leaves neither threads nor processes."""
    before = set(threading.enumerate())
    with pytest.raises(error, match=match):
        chatledger.open(location, **options)
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("chatledger")}
    assert not left


def is_owner(ledger: Ledger) -> bool:
    """Whether the server runs as a child of this process."""
    client = internals(ledger).log._client
    server = client._connect._server
    return bool(server is not None and server.is_owner)


def _check(ledger: Ledger, chat_id: str) -> list[Message]:
    return check_chat(ledger, chat_id).messages


def _merge(ledger: Ledger, chat_id: str, source: str, into: str, summaries: list[NewMessage]) -> Merge:
    return ledger.merge(chat_id, source, into, summary=summaries[0])


_SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "merge": _merge,
    "storm": _storm,
    "count_up": count_up,
    "forever": _forever,
    "current": _current,
    "positions": _positions,
    "check": _check,
    "is_owner": is_owner,
}


class Worker:
    """A ledger in another process, told what to do line by line."""

    def __init__(self, location: str | Path, **options: object) -> None:
        order = json.dumps({"location": str(location), **options})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ledger_world", order],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> Self:
        """Wait until the ledger is open."""
        assert self.receive() == ["ok", "open"]
        return self

    def send(self, method: str, *args: object, **kwargs: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, args, kwargs]) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Outcome:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other process ended"
        return cast("Outcome", json.loads(line))

    def call(self, method: str, *args: object, **kwargs: object) -> Outcome:
        self.send(method, *args, **kwargs)
        return self.receive()

    def answer(self, method: str, *args: object, **kwargs: object) -> Any:
        outcome = self.call(method, *args, **kwargs)
        assert outcome[0] == "ok", outcome
        return outcome[1]

    def rest(self) -> list[Outcome]:
        """The rest of its output; the last line may be cut short."""
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout if line.endswith("\n")]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Let it close its ledger and end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self.process.kill()
        self.close()


def _serve(order: dict[str, Any]) -> None:
    with chatledger.open(order.pop("location"), **order) as ledger:
        print(json.dumps(["ok", "open"]), flush=True)
        for line in sys.stdin:
            method, args, kwargs = json.loads(line)
            print(json.dumps(perform(ledger, method, args, kwargs)), flush=True)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
