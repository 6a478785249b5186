"""`LedgerSaver`: LangGraph's checkpoints as events on a ledger."""

import logging
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import anyio
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from msgspec import UNSET

from chatledger.domain.errors import (
    CheckpointConflictError,
    CheckpointExistsError,
    InvalidValueError,
    NotFoundError,
    RuntimeMismatchError,
)
from chatledger.domain.limits import check_count
from chatledger.domain.versioned.checkpoint_packing import pack, unpack, versions_of
from chatledger.domain.versioned.content import Serial, Tree
from chatledger.domain.versioned.pruning import plan_prune, plan_removal
from chatledger.domain.versioned.record import BEGINNING, CHECKPOINT, METADATA, PutVersion, TaskPut, VersionRecord
from chatledger.domain.versioned.standing import NULL_TASK
from chatledger.projections.chat.pages import only_new_collected

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.aio.awaiting import in_thread, threaded
from ...ledger.open import open_async
from .bound import (
    RUNTIME,
    VALUES,
    Refresh,
    begin_flow,
    may_ride,
    need_flow,
    next_version,
    nodes_run,
    thread_id_of,
)
from .reader import delta_history
from .threads import ThreadQueries

S = TypeVar("S")

_MOST_WAIT_S: Final = 5.0
"""So long a checkpoint waits for the writes before it. A node may rightly have none: then nothing ever comes."""
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.0002, 0.02
"""Writes come within a millisecond or so; where the log is slow, each look costs a read of the index."""
_logger = logging.getLogger(__name__)


class SaverOpening(Generic[S]):
    """
    A saver whose ledger is opened by `with` or `async with`, and closed at its end. Made by `LedgerSaver.from_conn_string`.

    Example:
        async with LedgerSaver.from_conn_string("./chatledger-data") as saver:
            graph = builder.compile(checkpointer=saver)
    """

    def __init__(self, saver: S, ledger: AsyncLedger) -> None:
        self._saver, self._ledger = saver, ledger

    def __enter__(self) -> S:
        self._ledger.blocking()
        return self._saver

    def __exit__(self, *error: object) -> None:
        self._ledger.blocking().close()

    async def __aenter__(self) -> S:
        await self._ledger
        return self._saver

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ledger.__aexit__(kind, error, trace)


class LedgerSaver(ThreadQueries):  # pyright: ignore[reportIncompatibleVariableOverride]  # `serde` may be set
    """
    Keeps the checkpoints of LangGraph on a ledger: every step an event, read from the index.

    Content is stored once: a step writes what is new in it, and forks and copies share what they have in common. Nothing is
    overwritten. Safe for threads and tasks; the async methods run in worker threads.

    Args:
        ledger: A `Ledger` or an `AsyncLedger`, which stays open as long as the saver is used and is not closed by it.
            `from_conn_string` makes a saver that opens and closes its own.
        serde: The serializer. By default LangGraph's own, and strict: it loads plain data, messages and other types that
            LangGraph knows to be safe, the classes that the schemas of the graphs name which use the saver, and `allow`.
            Of objects of other classes the data remain, and the log of `chatledger` says so.
        allow: Classes that may be loaded besides. Only for the default serializer.
        is_fenced: Refuse to go on from a checkpoint from which another writer, or a run at the same time, went on since it was read
            as the latest one.
        by_assistant: Keep what each assistant has on a thread apart: of the one that `configurable` names as `assistant_id`,
            as `for_assistant` does. Where it names none, the only assistant of the thread is meant.
        runtime: What is recorded as the writer; checkpoints of others are not resumed.
        ttl_seconds: A thread without a new checkpoint for so long is absent from then on, and the next sweep erases it; None: it stays.
        refresh: "read": reading a checkpoint with `get_tuple` puts the end off too, which is written where that gains 5 %.
    """

    @classmethod
    def from_conn_string(
        cls,
        location: str | os.PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        allow: Collection[type] = (),
        is_fenced: bool = True,
        by_assistant: bool = False,
        runtime: str = RUNTIME,
        ttl_seconds: float | None = None,
        refresh: Refresh = "write",
        **options: Any,
    ) -> SaverOpening[Self]:
        """
        A saver with a ledger of its own, which is opened by `with` or `async with` and closed at the end of it.

        Args:
            location: Where the ledger is, as of `chatledger.open`.
            serde: As of the saver, like those that follow.
            allow: Classes that may be loaded besides.
            is_fenced: Refuse runs that go on where another one did.
            by_assistant: Keep assistants apart.
            runtime: What is recorded as the writer.
            ttl_seconds: After how long without a new checkpoint a thread is absent.
            refresh: Whether reading puts that off too.
            options: The others of `chatledger.open`, such as `durability` and `encryption`.

        Raises:
            ConfigurationError: An argument is none of the kind that it should be.

        Opening raises what `chatledger.open` does.
        """
        ledger = open_async(location, **options)
        saver = cls(
            ledger,
            serde=serde,
            allow=allow,
            is_fenced=is_fenced,
            by_assistant=by_assistant,
            runtime=runtime,
            ttl_seconds=ttl_seconds,
            refresh=refresh,
        )
        return SaverOpening(saver, ledger)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """
        A checkpoint by its id, or the newest of the namespace; None when there is none.

        Raises:
            RuntimeMismatchError: Another runtime wrote it.
            InvalidValueError: The config names no thread; or no assistant, and the saver needs to know which one.
        """
        begin_flow()
        thread_id, namespace = self._place(config)
        checkpoint_id = get_checkpoint_id(config) or None
        reader = self._reader()
        stored = self._threads.get(thread_id, namespace, checkpoint_id, is_known=reader.is_known)
        read_id = checkpoint_id or (None if stored is None else stored.record.id)
        is_named = checkpoint_id is not None
        is_missed = is_named and stored is None and checkpoint_id != BEGINNING
        self._expectations.note(thread_id, namespace, read_id, is_named=is_named, is_missed=is_missed)
        if stored is None:
            return None
        if self._is_refreshed_by_reads and self._ttl_ms is not None:
            self._threads.refresh(thread_id, self._ttl_ms)
        if stored.record.runtime != self._runtime:
            raise RuntimeMismatchError(thread_id, stored.record.id, found=stored.record.runtime, expected=self._runtime)
        tuple_ = self._tuple(stored, reader)
        self._note_assistant(config, tuple_)
        return tuple_

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """
        Checkpoints, newest first: of all threads, of a thread, of a namespace of it, or one.

        Args:
            config: `thread_id`, and `checkpoint_ns` and `checkpoint_id` when given. None: of all threads. With `by_assistant`
                also `assistant_id`; without one, of all assistants.
            filter: What the metadata must equal, key by key.
            before: Only checkpoints with smaller ids than this one's.
            limit: At most so many; none when 0 or negative.
        """
        listed = self._listed(config, filter, before, limit)
        while True:
            # A caller that keeps them all has more and more containers, at all of which the collector would look time and again.
            with only_new_collected():
                checkpoint = next(listed, None)
            if checkpoint is None:
                return
            yield checkpoint

    def _listed(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        if limit is not None and limit <= 0:
            return
        thread_id = None if config is None else thread_id_of(config)
        wanted_ns = None if config is None else config.get("configurable", {}).get("checkpoint_ns")
        is_of_all = config is None or (self._by_assistant and not self._assistant_in(config))
        within = self._root if config is None or is_of_all else self._root_for(config)
        namespace = None if config is None or is_of_all or wanted_ns is None else self._place(config)[1]
        only = None if config is None else get_checkpoint_id(config) or None
        bound = None if before is None else get_checkpoint_id(before) or None

        def keep(_thread_id: str, record: VersionRecord) -> bool:
            if is_of_all and wanted_ns is not None and self._shown(record.line) != wanted_ns:
                return False
            metadata: dict[str, Any] = self._serde.loads_typed(record.frames[METADATA]) if wanted else {}
            return all(metadata.get(key) == value for key, value in (wanted or {}).items())

        reader = self._reader()
        for stored in self._threads.checkpoints(
            thread_id,
            namespace,
            within=within,
            before=bound,
            only=only,
            keep=keep,
            limit=limit,
            is_known=reader.is_known,
        ):
            if bound is not None:
                record = stored.record
                self._expectations.note(stored.thread_id, record.line, record.id, is_named=True)
            yield self._tuple(stored, reader)
        if bound is not None and thread_id is not None and namespace is not None:
            # A graph that is replayed looks in this way for what a subgraph had then, and begins it anew when that was nothing.
            self._expectations.note(thread_id, namespace, None, is_named=True)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """
        Store a checkpoint whose parent is the one in `config`, with the writes of the parent's tasks that are not stored yet.

        Under `durability="sync"` of LangGraph it waits until those of all nodes that ran are there, since the graph does not.

        Returns:
            The config of the new checkpoint.

        Raises:
            CheckpointConflictError: Another writer, or another run, went on from the same checkpoint.
            CheckpointExistsError: It is stored with other content. To repeat a put is harmless.
            InvalidValueError: It would be its own ancestor.
            NotFoundError: The one before was looked for, and is not there.
        """
        for pause_s in self._pauses(config, checkpoint, metadata):
            time.sleep(pause_s)
        return self._put(config, checkpoint, metadata, new_versions)

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, namespace = self._place(config)
        before_id = get_checkpoint_id(config) or None
        if before_id is not None and self._expectations.was_missed(thread_id, namespace, before_id):
            # LangGraph begins with an empty state where a checkpoint is not found, which would become the thread's latest. A copy
            # does not begin there: it stands beside its original, whose parent may be left as a skeleton.
            has_skeleton = self._threads.peek(thread_id, namespace, before_id) is not None
            is_copy = metadata.get("source") == "fork" and has_skeleton
            try:
                if not is_copy:
                    self._threads.check_checkpoint(thread_id, namespace, before_id)
            except NotFoundError:
                self._expectations.note(thread_id, namespace, checkpoint["id"], is_named=True, is_missed=True)
                raise
        parent_id = None if before_id == BEGINNING else before_id
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        full = get_checkpoint_metadata(config, metadata)
        run_id = full.get("run_id")
        changed = values.keys() if parent_id is None else values.keys() & new_versions.keys()
        not_given = [name for name in versions if name not in values and name not in new_versions]
        unchanged = {name: value for name, value in values.items() if name not in changed}
        # A copy of a checkpoint stands beside it: it is a fork, and continues nothing.
        may_continue = self._is_fenced and full.get("source") != "fork"
        is_continuing = may_continue and self._expectations.is_continuing(thread_id, namespace, before_id)
        packed = pack({key: part for key, part in checkpoint.items() if key != VALUES})
        put = PutVersion(
            line=namespace,
            id=checkpoint["id"],
            parent=parent_id,
            frames=(self._serde.dumps_typed(packed), self._serde.dumps_typed(full)),
            values={name: self._values.encode(value) for name, value in values.items() if name in changed},
            unchanged=partial(self._unchanged, versions, not_given, unchanged),
            not_given=not_given,
            runtime=self._runtime,
            run_id=run_id if isinstance(run_id, str) else None,
            ttl_ms=self._ttl_ms,
            expected_latest=parent_id if is_continuing else UNSET,
        )
        try:
            self._put_expected(thread_id, put)
        except CheckpointExistsError:
            if not self._is_repeated(thread_id, put, checkpoint, full):
                raise
        return self._config(thread_id, namespace, checkpoint["id"])

    def _pauses(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> Iterator[float]:
        """
        Yield pauses, in seconds, as long as a checkpoint is to wait for writes of the step before it.

        LangGraph hands both to a pool of threads, also under `durability="sync"`, and waits for the checkpoint only: a process that
        ended in between had the checkpoint without the writes (langgraph#8039). The nodes that ran are those whose seen versions
        changed. Tasks by `Send` share the name of their node, so that not all of them need be waited for.
        """
        before_id = get_checkpoint_id(config)
        if may_ride(config) or not before_id or metadata.get("source") != "loop":
            return
        thread_id, namespace = self._place(config)
        end, pause_s = time.monotonic() + _MOST_WAIT_S, _FIRST_PAUSE_S
        count: int | None = None
        while True:
            before, finished = self._threads.step(thread_id, namespace, before_id)
            if before is None or before.runtime != self._runtime:
                return
            if count is None:
                seen = unpack(self._serde.loads_typed(before.frames[CHECKPOINT]), before_id)["versions_seen"]
                count = len(nodes_run(seen, checkpoint["versions_seen"]))
            # What a caller adds from outside, such as the answer to an interrupt, is no task's.
            missing = count - len(finished - {NULL_TASK})
            if missing <= 0:
                return
            if time.monotonic() > end:
                _logger.warning(
                    "checkpoint %s of thread %r was stored without the writes of %d tasks before it, which did not come within "
                    "%g s; a run that is resumed before it repeats them",
                    checkpoint["id"],
                    thread_id,
                    missing,
                    _MOST_WAIT_S,
                )
                return
            yield pause_s
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def _is_repeated(
        self, thread_id: str, put: PutVersion, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> bool:
        """Whether a checkpoint is equal to the stored one of its id."""
        stored = self._threads.get(thread_id, put.line, put.id)
        if stored is None or (stored.record.parent, stored.record.runtime) != (put.parent, put.runtime):
            return False
        # Compared when both are decoded: an encrypting serializer gives other bytes each time.
        before = self._tuple(stored, self._reader())
        values = {name: value for name, value in before.checkpoint[VALUES].items() if name not in put.not_given}
        repeated: Any = self._serde.loads_typed(self._serde.dumps_typed([checkpoint, metadata]))
        try:
            return bool([{**before.checkpoint, VALUES: values}, before.metadata] == repeated)
        except (TypeError, ValueError):  # such as arrays, which have no one answer
            return False

    def _put_expected(self, thread_id: str, put: PutVersion) -> None:
        expectations = self._expectations
        may_branch = partial(expectations.may_branch, thread_id, put.line, put.parent)
        try:
            with expectations.putting(thread_id, put.line, put.id):
                self._threads.put_checkpoint(thread_id, put, may_branch=may_branch)
        except CheckpointConflictError as error:
            if not expectations.was_put(thread_id, put.line, error.latest_id):
                raise
            raise CheckpointConflictError(
                thread_id, put.line, parent_id=put.parent, latest_id=error.latest_id, is_own=True
            ) from None

    def _unchanged(
        self,
        versions: Mapping[str, Any],
        not_given: Sequence[str],
        values: Mapping[str, Any],
        parent: VersionRecord | None,
    ) -> dict[str, Tree | Serial | None]:
        """Channels that did not change: None for those that the parent has at the same version, the others in pieces."""
        same: set[str] = set()
        if (not_given or values) and parent is not None and parent.runtime == self._runtime:
            before = versions_of(self._serde.loads_typed(parent.frames[CHECKPOINT]))
            same = {name for name in parent.fields if name in before and before[name] == versions.get(name)}
        inherited: dict[str, Tree | Serial | None] = {name: None for name in (*not_given, *values) if name in same}
        return inherited | {name: self._values.encode(value) for name, value in values.items() if name not in same}

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """
        Store what a task wrote. The checkpoint may come later; what is repeated changes nothing.

        Unless LangGraph's `durability` is "sync", writes to channels of the state are stored up to 50 ms later, with the next
        checkpoint if that comes first. Why that failed is raised by the next call on the thread.
        """
        written_at = time.time_ns() // 1_000_000  # the event that stores it may come later
        thread_id, namespace = self._place(config)
        checkpoint_id = get_checkpoint_id(config)
        if not checkpoint_id:
            msg = f"writes of thread {thread_id!r} need a checkpoint_id in the config"
            raise InvalidValueError(msg)
        if self._expectations.was_missed(thread_id, namespace, checkpoint_id):
            self._threads.check_checkpoint(thread_id, namespace, checkpoint_id)  # such as one whose put was refused
        encoded = [
            (WRITES_IDX_MAP.get(channel, position), channel, self._values.encode(value))
            for position, (channel, value) in enumerate(writes)
        ]
        # Errors, interrupts and what answers them decide how a run goes on, and no checkpoint need follow them.
        is_riding = may_ride(config) and all(index >= 0 for index, _, _ in encoded)
        task = TaskPut(task_id, task_path, written_at, encoded)
        self._threads.hand_over(thread_id, namespace, checkpoint_id, task, is_riding=is_riding)

    def delete_thread(self, thread_id: str) -> None:
        """
        Remove a thread, of a bound saver what is its assistant's; unknown ones are no error.

        Without an assistant its events are erased from the log.
        """
        self._threads.delete(str(thread_id), within=self._root)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that runs made, by `run_id` in the metadata; what later ones need of them stays."""
        by_thread: dict[str, list[tuple[str, str]]] = {}
        for run_id in run_ids:
            for thread_id, namespace, checkpoint_id in self._threads.of_run(run_id):
                if self._is_ours(namespace):
                    by_thread.setdefault(thread_id, []).append((namespace, checkpoint_id))
        for thread_id, keys in by_thread.items():
            self._threads.remove(thread_id, partial(plan_removal, keys=keys, metadata_of=self._metadata), reason="runs")

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """
        Give a new thread all that another one has, in one event; an unknown source is no error.

        Raises:
            AlreadyExistsError: The target is not empty.
        """
        source, target = str(source_thread_id), str(target_thread_id)
        if any(map(self._is_ours, self._threads.namespaces(source))):
            self._threads.copy(source, target, within=self._root)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep_last: int = 1) -> None:
        """
        Remove old checkpoints of threads.

        Args:
            thread_ids: The threads; unknown ones are no error.
            strategy: `keep_latest` keeps the newest of each namespace and whatever they need: their writes, interrupted
                subgraphs, what their delta channels are made from. `delete` keeps nothing.
            keep_last: How many checkpoints of each namespace `keep_latest` keeps. They read as before, except that the
                oldest of them may have no parent any more.

        Raises:
            TypeError: `thread_ids` is text.
            ValueError: There is no such strategy, or `keep_last` is no number above 0.
        """
        if isinstance(thread_ids, str):
            msg = "thread_ids must be a list of ids, not text"
            raise TypeError(msg)
        if strategy not in {"keep_latest", "delete"}:
            msg = f"strategy must be 'keep_latest' or 'delete', not {strategy!r}"
            raise InvalidValueError(msg)
        if check_count(keep_last, "keep_last") == 0:
            msg = "keep_last must be at least 1; the strategy 'delete' keeps nothing"
            raise InvalidValueError(msg)
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            plan = partial(plan_prune, is_ours=self._is_ours, metadata_of=self._metadata, keep_last=keep_last)
            self._threads.remove(thread_id, plan, reason="pruned")

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes of each channel on the way to a checkpoint, oldest first, and the value that they start from."""
        if not channels:
            return {}
        thread_id, namespace = self._place(config)
        checkpoint_id = get_checkpoint_id(config) or None
        with self._threads.reading(thread_id) as thread:
            return delta_history(thread, namespace, checkpoint_id, channels, self._reader())

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The version after `current`, which may be of any saver's form."""
        del channel
        return next_version(current)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Asynchronous version of `get_tuple`."""
        begin_flow()
        self._learn()
        return await in_thread(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Asynchronous version of `list`."""
        self._learn()
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        while (checkpoint := await in_thread(lambda: next(checkpoints, None))) is not None:
            yield checkpoint

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Asynchronous version of `put`."""
        need_flow()
        if not may_ride(config):  # the pauses are made here: a worker thread that waits is one less for the writes
            pauses = self._pauses(config, checkpoint, metadata)
            while (pause_s := await in_thread(lambda: next(pauses, None))) is not None:  # noqa: ASYNC110 - other threads write
                await anyio.sleep(pause_s)
        return await in_thread(lambda: self._put(config, checkpoint, metadata, new_versions))

    # Theirs are declared as coroutines of `async def`; these are awaited alike.
    aput_writes = threaded(put_writes)  # pyright: ignore[reportAssignmentType]
    adelete_thread = threaded(delete_thread)  # pyright: ignore[reportAssignmentType]
    adelete_for_runs = threaded(delete_for_runs)  # pyright: ignore[reportAssignmentType]
    acopy_thread = threaded(copy_thread)  # pyright: ignore[reportAssignmentType]
    aprune = threaded(prune)  # pyright: ignore[reportAssignmentType]

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Asynchronous version of `get_delta_channel_history`."""
        self._learn()
        return await in_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))
