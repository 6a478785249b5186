"""Threads of agents on a ledger: checkpoints, pending writes and their content, whatever framework they come from."""

import marshal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import merge
from operator import attrgetter
from typing import Any, Final, cast

import msgspec

from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.chat.memory import beginning_of
from chatledger.domain.errors import NotFoundError, QuarantinedError
from chatledger.domain.limits import COMMIT_EVENTS
from chatledger.domain.versioned.content import Content, Serial, Tree
from chatledger.domain.versioned.decide import (
    check_source,
    check_task,
    decide_copy,
    decide_delete,
    decide_put,
    decide_remove,
    decide_remove_lines,
    decide_set_expiry,
    decide_writes,
)
from chatledger.domain.versioned.decide_import import Reemission, decide_reemit
from chatledger.domain.versioned.keys import THREAD, is_within, thread_stream
from chatledger.domain.versioned.pruning import Removal
from chatledger.domain.versioned.record import (
    BEGINNING,
    PutVersion,
    StoredWrite,
    TaskPut,
    VersionedRecord,
    VersionRecord,
    ancestors,
    is_expired,
)
from chatledger.projections.log.kinds import CHATS, THREADS, Decision
from chatledger.projections.versioned.lists import listed_values, listed_versions, versions_of_run
from chatledger.projections.versioned.reader import IndexedVersioned, PlainReader, load_contents

from ..log.envelope import clock_ms
from ..store.commands import ChatsToRead
from .ledger import Ledger
from .messages import place_in
from .port import LedgerSnapshot, StorePort, store_of
from .thread_lists import ThreadInfo, thread_in, thread_info

__all__ = [
    "MARSHAL_VERSION",
    "MAX_DEPTH",
    "IndexedVersioned",
    "PlainReader",
    "StoredCheckpoint",
    "ThreadInfo",
    "Threads",
    "is_cut",
    "thread_info",
]


MAX_DEPTH: Final = 16
MARSHAL_VERSION: Final = 2  # the last one whose bytes do not depend on who else refers to a value
_WHOLE_BYTES: Final = 512
"""Values of plain data that are smaller than this are not cut."""


def is_cut(value: Any, depth: int) -> bool:
    """Whether a list, or a dict with text keys, is stored as its elements."""
    if depth >= MAX_DEPTH or not value:
        return False
    kind = cast("type[Any]", type(value))
    if kind is dict and set(map(type, value)) != {str}:
        return False
    return kind in {list, dict} and not _is_small(value)


def _is_small(value: Any) -> bool:
    """Whether it is plain data of few bytes, which is not worth being cut."""
    try:
        return len(marshal.dumps(value, MARSHAL_VERSION)) < _WHOLE_BYTES
    except ValueError:
        return False


_PAGE: Final = 64


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """
    A checkpoint with what belongs to it.

    Args:
        record: The checkpoint itself.
        thread_id: Its thread.
        writes: Its pending writes, by task path, task and index.
        pieces: The content of its channels and writes by digest, as it is stored: a list may name one that it grew out of.
            Without what the reader said it has, and in a listing with that of others.
        parent_id: Its parent; None at a root, and where the parent was removed. A pruned one is named where the checkpoint is
            made from it.
    """

    record: VersionRecord
    thread_id: str
    writes: list[StoredWrite]
    pieces: dict[bytes, Content]
    parent_id: str | None


IsKnown = Callable[[bytes], bool]


def _nothing(digest: bytes) -> bool:
    del digest
    return False


class Threads:
    """
    The threads of agents on a ledger.

    Every write is one commit on the log, and reads come from the index. Repeating a write changes nothing.

    Args:
        ledger: The ledger; it stays open as long as this is used, and is closed by who opened it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def _store(self) -> StorePort:
        return store_of(self._ledger)

    def put_checkpoint(
        self, thread_id: str, put: PutVersion, *, may_branch: Callable[[str], bool] = lambda _latest_id: False
    ) -> None:
        """
        Store a checkpoint. `may_branch` says beside which latest ones it may begin a branch, whatever `put` expects.

        Raises:
            CheckpointConflictError: Another checkpoint came to the namespace than `put.expected_latest`.
            CheckpointExistsError: It is stored already, and differs.
            InvalidValueError: An id breaks a rule, or the checkpoint would be its own ancestor.
            PayloadTooLargeError: The checkpoint does not fit into an event.
        """
        store, place = self._store, (put.line, put.parent or "")
        put = put if store.redactor is None else store.redactor.put(put)
        with store.task_writes.carried(thread_id, place, user_id=store.user_id) as tasks:
            store.execute(
                THREADS,
                thread_id,
                lambda state, now: decide_put(state, put, now, may_branch=may_branch, tasks=tasks),
            )

    def hand_over(self, thread_id: str, namespace: str, checkpoint_id: str, task: TaskPut, *, is_riding: bool) -> None:
        """
        Take writes of a task, and return when they are stored, with those of other calls in one event where several come at once.

        With `is_riding` return at once: they are stored with the next checkpoint below theirs, or 50 ms later with those of other
        tasks, or when the thread is read or changed in another way. Why that failed is raised by the next call on the thread, of
        the same user.

        Raises:
            AccessDeniedError, AlreadyExistsError: The user may not write to the thread.
        """
        check_task(namespace, checkpoint_id, task.task_id)
        store = self._store
        task = task if store.redactor is None else store.redactor.task(task)
        with store.snapshot() as snapshot:
            # Not only when they are stored: nobody may find their own call refused for what another one handed over.
            snapshot.stream(THREADS, thread_id).check_may_write()
        place = namespace, checkpoint_id
        write = partial(_store_writes, store, thread_id, place)
        store.task_writes.add(thread_id, place, task, write, user_id=store.user_id, is_riding=is_riding)

    def step(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[VersionRecord | None, set[str]]:
        """Return a checkpoint and the ids of its tasks that wrote what they write. What waits to be stored goes on waiting."""
        with self._store.snapshot() as snapshot:
            thread = thread_in(snapshot, thread_id)
            written = {write.task_id for write in thread.writes(namespace, checkpoint_id) if write.index >= 0}
            return thread.version(namespace, checkpoint_id), written

    def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        *,
        task_id: str,
        task_path: str,
        writes: Sequence[tuple[int, str, Tree | Serial]],
        written_at: int | None = None,
    ) -> bool:
        """
        Store a task's writes, as (index, channel, value); the checkpoint may come later. Taken slots from 0 on stay.

        `written_at` is when the task handed them over, in ms since the epoch; now when None, and 0 where nobody knows.

        Returns:
            Whether one of them was new.
        """
        task = TaskPut(task_id, task_path, clock_ms() if written_at is None else written_at, writes)
        store = self._settled(thread_id)
        task = task if store.redactor is None else store.redactor.task(task)
        return bool(_store_writes(store, thread_id, (namespace, checkpoint_id), [task]))

    def get(
        self, thread_id: str, namespace: str, checkpoint_id: str | None = None, *, is_known: IsKnown = _nothing
    ) -> StoredCheckpoint | None:
        """
        A checkpoint, or the newest of the namespace; None when there is none. Skeletons are not seen.

        `is_known` says which pieces of content the reader has already, by digest; those are not read again.
        """
        with self.reading(thread_id) as thread:
            record = thread.newest(namespace) if checkpoint_id is None else thread.version(namespace, checkpoint_id)
            return None if record is None or record.skeleton is not None else _loaded(thread, record, is_known, {})

    def peek(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> VersionRecord | None:
        """The record of a checkpoint, or of the newest, without content; skeletons too when named."""
        with self.reading(thread_id) as thread:
            return thread.newest(namespace) if checkpoint_id is None else thread.version(namespace, checkpoint_id)

    def checkpoints(
        self,
        thread_id: str | None = None,
        namespace: str | None = None,
        *,
        within: str | None = None,
        before: str | None = None,
        only: str | None = None,
        keep: Callable[[str, VersionRecord], bool] = lambda _thread_id, _record: True,
        limit: int | None = None,
        is_known: IsKnown = _nothing,
    ) -> Iterator[StoredCheckpoint]:
        """
        Checkpoints, those with greater ids first.

        No transaction is open while the consumer sits between two of them.

        Args:
            thread_id: Of one thread; of all when None, but for those that are in quarantine.
            namespace: Of one namespace; of all when None.
            within: Of this namespace and those below it.
            before: Only those with smaller ids.
            only: Only those with this id.
            keep: Given a thread id and a checkpoint, whether it is wanted.
            limit: At most so many.
            is_known: As in `get`.
        """
        left = limit
        pages = self._pages(thread_id, namespace, within, before) if only is None else self._named(thread_id, only)
        for keys in pages:
            loaded: list[StoredCheckpoint] = []
            pieces: dict[bytes, Content] = {}  # checkpoints that follow each other have most of theirs in common
            with self._settled(thread_id).snapshot() as snapshot:
                threads: dict[str, IndexedVersioned | None] = {}
                for owner, name, checkpoint_id in keys:
                    if left is not None and len(loaded) >= left:
                        break
                    if not (_is_wanted(name, namespace, within) and (before is None or checkpoint_id < before)):
                        continue
                    if owner not in threads:
                        threads[owner] = _readable(snapshot, owner, is_named=thread_id is not None)
                    thread = threads[owner]
                    record = None if thread is None else thread.version(name, checkpoint_id)
                    if thread is not None and record is not None and record.skeleton is None and keep(owner, record):
                        loaded.append(_loaded(thread, record, is_known, pieces))
            yield from loaded
            if left is not None:
                left -= len(loaded)
                if left <= 0:
                    return

    def _pages(
        self, thread_id: str | None, namespace: str | None, within: str | None, before: str | None
    ) -> Iterator[list[tuple[str, str, str]]]:
        """(thread, namespace, checkpoint) in order, page by page."""
        if thread_id is None:
            yield from self._pages_of_all(namespace, within, before)
            return
        size = 1  # the first is often all that is wanted
        while True:
            page: list[tuple[str, str, str]] = []
            with self.reading(thread_id) as thread:
                names = [name for name in thread.lines() if _is_wanted(name, namespace, within)]
                for record in newest_first(thread, names, before=before):
                    # Versions that were copied to another line have one id: a page ends behind the last of them.
                    if len(page) >= size and record.id != page[-1][2]:
                        break
                    page.append((thread_id, record.line, record.id))
            if not page:
                return
            yield page
            before, size = page[-1][2], min(size * 4, _PAGE)

    def _named(self, thread_id: str | None, checkpoint_id: str) -> Iterator[list[tuple[str, str, str]]]:
        for owner in self.thread_ids() if thread_id is None else [thread_id]:
            yield [(owner, name, checkpoint_id) for name in self.namespaces(owner)]

    def _pages_of_all(
        self, namespace: str | None, within: str | None, before: str | None
    ) -> Iterator[list[tuple[str, str, str]]]:
        resume: bytes | None = None
        while True:
            page: list[tuple[str, str, str]] = []
            count = 0
            with self._settled().snapshot() as snapshot:
                listed = listed_versions(snapshot.txn, snapshot.tables, before=before, resume=resume)
                for key, thread_id, name, checkpoint_id in listed:
                    resume, count = key, count + 1
                    if _is_wanted(name, namespace, within):
                        page.append((thread_id, name, checkpoint_id))
                    if count == _PAGE:
                        break
            if page:
                yield page
            if count < _PAGE:
                return

    def namespaces(self, thread_id: str) -> list[str]:
        """The namespaces of a thread, in the order in which they came up; none when there is no such thread."""
        with self.reading(thread_id) as thread:
            return thread.lines()

    def thread_ids(self) -> list[str]:
        """All threads, the oldest first."""
        with self._settled().snapshot() as snapshot:
            return [thread.key for thread, _ in _living(snapshot)]

    def of_run(self, run_id: str) -> list[tuple[str, str, str]]:
        """The checkpoints that a run made: (thread id, namespace, checkpoint id)."""
        with self._settled().snapshot() as snapshot:
            listed = versions_of_run(snapshot.txn, snapshot.tables, run_id)
            return [key for key in listed if thread_in(snapshot, key[0], even_quarantined=True).record is not None]

    @contextmanager
    def reading(self, thread_id: str) -> Generator[IndexedVersioned]:
        """A thread at one moment, for questions that belong together."""
        with self._settled(thread_id).snapshot() as snapshot:
            yield thread_in(snapshot, thread_id)

    def check_checkpoint(self, thread_id: str, namespace: str | None, checkpoint_id: str) -> None:
        """
        Check that a namespace, or any when None, has a checkpoint to go on from; `BEGINNING` is there always.

        Raises:
            NotFoundError: It has none of that id, or no more.
        """
        with self.reading(thread_id) as thread:

            def has(name: str) -> bool:
                record = thread.version(name, checkpoint_id)
                return record is not None and record.skeleton is None

            if checkpoint_id == BEGINNING or (namespace is not None and has(namespace)):
                return
            others = list(filter(has, thread.lines()))
        if namespace is None and others:
            return
        where = "" if namespace is None else f" in the namespace {namespace!r}"
        why = f"it is of {', '.join(map(repr, others))}" if others else "it was pruned, or never there"
        msg = f"thread {thread_id!r} has no checkpoint {checkpoint_id!r}{where}: {why}"
        raise NotFoundError(msg)

    def beginning_of(self, thread_id: str, namespace: str, *, chat_id: str, message_id: str) -> str | None:
        """
        Return the checkpoint at which a run begins that a message of a chat sets off; None for the newest.

        Raises:
            ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the message is not there.

        Source: the index, by the runs on the chain of the message; see `domain.chat.memory`.
        """
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            chat = snapshot.chat(chat_id)
            place_in(chat, chat_id, message_id)
            return beginning_of(chat, thread_in(snapshot, thread_id), namespace, message_id)

    def delete(self, thread_id: str, *, within: str | None = None) -> None:
        """
        Remove a thread and erase its events, or only a namespace with those below it. An unknown one is no error.

        Threads that were copied from it keep what they have: it is written to their own streams first.
        """
        if within is not None:
            self._execute(thread_id, lambda state, _now: decide_remove_lines(state, within=within, reason="deleted"))
            return
        self._execute(thread_id, lambda state, _now: decide_delete(state))
        self._store.erase_deleted()

    def refresh(self, thread_id: str, ttl_ms: int) -> None:
        """Let a thread that expires do so that long after now, in ms, unless that is little later; others stay as they are."""
        with self.reading(thread_id) as thread:
            is_due = bool(decide_set_expiry(thread, ttl_ms, clock_ms()))
        if is_due:  # nearly always it is not: so reading takes no commit
            self._execute(thread_id, lambda state, now: decide_set_expiry(state, ttl_ms, now))

    def remove(self, thread_id: str, plan: Callable[[IndexedVersioned], Removal], *, reason: str) -> None:
        """
        Remove checkpoints with their writes; of skeletons what later checkpoints need stays.

        The plan says which, of the thread as it is when the removal is written.
        """

        def decide(state: IndexedVersioned, now: int) -> list[Body]:
            if state.record is None or is_expired(state.record, now):
                return []
            removal = plan(state)
            return decide_remove(state, reason=reason, versions=removal.removed, skeletons=removal.skeletons)

        self._execute(thread_id, decide)

    def migrate(self, thread_id: str, moves: Sequence[Reemission]) -> None:
        """Store checkpoints and their writes in other namespaces of the thread too; what is there already stays."""
        for at in range(0, len(moves), _PAGE):
            page = moves[at : at + _PAGE]

            def decide(state: IndexedVersioned, _now: int, page: Sequence[Reemission] = page) -> list[Body]:
                return decide_reemit(state, page, limit=COMMIT_EVENTS)

            while self._execute(thread_id, decide) == COMMIT_EVENTS:
                continue

    def infos(self, *, within: str | None = None) -> list[ThreadInfo]:
        """Return the metadata of all threads, the oldest first; of those that have a namespace only what is in it or below."""
        with self._settled().snapshot() as snapshot:
            living = ((thread, thread_info(thread, record)) for thread, record in _living(snapshot))
            infos = [info if within is None else _info_within(thread, info, within) for thread, info in living]
        return [info for info in infos if within is None or info.namespaces]

    def infos_without_chat(self) -> list[ThreadInfo]:
        """Return the metadata of the threads whose id is that of no chat, the oldest first. Costs a look at each thread."""
        infos: list[ThreadInfo] = []
        with self._settled().snapshot() as snapshot:
            for thread, record in _living(snapshot):
                if snapshot.stream(CHATS, thread.key, even_quarantined=True).record is None:
                    infos.append(thread_info(thread, record))
        return infos

    def copy(self, source_id: str, target_id: str, *, within: str | None = None) -> None:
        """
        Let a thread take over what another one has, in one event, whatever its size.

        Raises:
            NotFoundError: There is no source.
            AlreadyExistsError: The target is not empty.
        """
        with self.reading(source_id):
            pass  # refused when it is in quarantine

        def decide(state: IndexedVersioned, now: int) -> list[Body]:
            return decide_copy(state, state.beside(thread_stream(source_id)), now, within=within)

        self._execute(target_id, decide)
        with self.reading(target_id) as target:
            if not target.record or not target.record.version_count:
                # Another one may have deleted the source before the copy was on the log.
                check_source(target_id, target.beside(thread_stream(source_id)), clock_ms())

    def _settled(self, thread_id: str | None = None) -> StorePort:
        """Return the store after the writes were stored that wait, of one thread or of all. Raises why those of a thread could not be."""
        store = self._store
        store.task_writes.settle(thread_id)
        if thread_id is not None:
            store.task_writes.raise_error(thread_id, store.user_id)
        return store

    def _execute(self, thread_id: str, decide: Decision[IndexedVersioned]) -> int:
        """Carry a decision out; returns how many events were written."""
        return len(self._settled(thread_id).execute(THREADS, thread_id, decide))


def _store_writes(store: StorePort, thread_id: str, place: tuple[str, str], tasks: Sequence[TaskPut]) -> list[Recorded]:
    return store.execute(THREADS, thread_id, lambda state, now: decide_writes(state, *place, tasks, now))


def _living(snapshot: LedgerSnapshot) -> Iterator[tuple[IndexedVersioned, VersionedRecord]]:
    """Yield the threads, the oldest first."""
    for _, listed in listed_values(snapshot.txn, snapshot.tables, THREAD, user_id=snapshot.user_id):
        thread = thread_in(snapshot, listed.key, even_quarantined=True)
        if thread.record is not None:
            yield thread, thread.record


def _readable(snapshot: LedgerSnapshot, thread_id: str, *, is_named: bool) -> IndexedVersioned | None:
    """Return a thread; None where it is in quarantine, which is an error only when it was asked for by name."""
    try:
        return thread_in(snapshot, thread_id)
    except QuarantinedError:
        if is_named:
            raise
        return None


def _info_within(thread: IndexedVersioned, info: ThreadInfo, within: str) -> ThreadInfo:
    names = [name for name in info.namespaces if is_within(name, within)]
    if len(names) == len(info.namespaces):
        return info
    count = sum(1 for name in names for _ in thread.version_ids(name))
    return msgspec.structs.replace(info, namespaces=names, checkpoint_count=count)


def newest_first(
    thread: IndexedVersioned, namespaces: Iterable[str], *, before: str | None = None
) -> Iterator[VersionRecord]:
    """Yield the checkpoints of some namespaces, those with greater ids first, by one cursor for each of them."""
    listed = (thread.versions(name, before=before) for name in namespaces)
    return merge(*listed, key=attrgetter("id"), reverse=True)


def _is_wanted(name: str, namespace: str | None, within: str | None) -> bool:
    return (namespace is None or name == namespace) and (within is None or is_within(name, within))


def _loaded(
    thread: IndexedVersioned, record: VersionRecord, is_known: IsKnown, pieces: dict[bytes, Content]
) -> StoredCheckpoint:
    writes = thread.writes(record.line, record.id)
    roots = [*record.digests, *(write.digest for write in writes)]
    parent_id = record.parent
    if record.is_orphan and not any(ancestors(record, partial(thread.version, record.line))):
        parent_id = None
    return StoredCheckpoint(record, thread.key, writes, load_contents(thread, roots, is_known, pieces), parent_id)
