"""The base of a saver: threads, a serializer, and the assistant that it may be bound to."""

import asyncio
import copy
import logging
import random
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from chatledger.domain.errors import ChatledgerError, ConfigurationError, InvalidValueError
from chatledger.domain.limits import check_choice
from chatledger.domain.versioned.checkpoint_packing import VERSION_FORM, VERSION_TAILS, unpack
from chatledger.domain.versioned.keys import ASSISTANT, assistant_namespace, check_namespace, is_within, root_of
from chatledger.domain.versioned.record import CHECKPOINT, METADATA, VersionRecord

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.graph.values import milliseconds
from ...ledger.ledger import Ledger
from ...ledger.threads import StoredCheckpoint, Threads
from .reader import Decoded, Reader
from .serializer import StateSerializer, checked_classes
from .values import Values

_DURABILITY: Final = "__pregel_durability"
"""Private to LangGraph, whose own name of it has moved between versions."""
_NO_NODES: Final = {"__input__", "__interrupt__"}


def may_ride(config: RunnableConfig) -> bool:
    """Whether writes may wait for the next checkpoint: the `durability` is async, as by default, or exit, and none that is not known."""
    return config.get("configurable", {}).get(_DURABILITY, "async") in {"async", "exit"}


def nodes_run(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the nodes that ran between two checkpoints, from the versions that each node has seen."""
    return [node for node, seen in after.items() if node not in _NO_NODES and before.get(node) != seen]


def next_version(current: Any) -> Any:
    """
    The version after another, in the same form: threads of other savers go on as they began.

    A new thread has text: a number of 32 digits, a dot, and 8 random digits.
    """
    if isinstance(current, int | float) and not isinstance(current, bool):
        return current + 1
    number = "0" if current is None else current.partition(".")[0] if isinstance(current, str) else ""
    if not number.isdecimal():
        msg = f"a channel version must be a number or text that begins with one, not {current!r}"
        raise InvalidValueError(msg)
    return VERSION_FORM % (int(number) + 1, random.randrange(VERSION_TAILS))  # noqa: S311 - tells forks apart, hides nothing


_MAX_KNOWN: Final = 65_536

_Key = tuple[str, str, str | None]
Flow = weakref.ReferenceType[Any]
"""The task, or outside of tasks the thread, in which a run read the thread that it goes on with."""

_flow: ContextVar[Flow | None] = ContextVar("chatledger_flow", default=None)


class _How(Enum):
    """The way in which the saver came by a checkpoint last."""

    AS_LATEST = "read as the latest one of its namespace, or found that there is none"
    BY_NAME = "read by its id, or as the latest before another one"
    MISSED = "looked for by its id, and not there"
    PUT = "put"


class _CheckpointOrigin(NamedTuple):
    how: _How
    putter: Flow | None = None
    """The flow of the run that put it, if it was put by this saver."""
    is_left_over: bool | None = False
    """Whether it was put after the end of its run: a cancelled run does not wait for its last checkpoints. None: it is on its way."""


class Expectations:
    """
    The checkpoints that a saver has read or put, and how. None stands for a namespace that was found empty.

    A run that goes on from the latest checkpoint means to continue the thread, and must not when somebody else did: another writer,
    or another run of this saver. A run that goes on from a checkpoint that it named forks it. And what this saver put itself may
    be gone on from several times, beside what this saver put, but not beside what others did.
    """

    def __init__(self) -> None:
        self._origins: OrderedDict[_Key, _CheckpointOrigin] = OrderedDict()
        self._lock = threading.Lock()
        """For looks that lead to changes; a look alone is one step."""

    def note(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, is_named: bool, is_missed: bool = False
    ) -> None:
        """
        Note that a checkpoint was read as the latest of its namespace, or that there is none.

        Or else it `is_named`, by its id or as the latest before another one: a run that reads it so means to go back. With
        `is_missed` a checkpoint that was named was not there.
        """
        key, how = (thread_id, namespace, checkpoint_id), _How.BY_NAME if is_named else _How.AS_LATEST
        how = _How.MISSED if is_missed else how
        with self._lock:
            self._keep(key, self._origins.get(key, _CheckpointOrigin(how))._replace(how=how))

    @contextmanager
    def putting(self, thread_id: str, namespace: str, checkpoint_id: str) -> Generator[None]:
        """Note a checkpoint as this saver's own before others can see it."""
        # A run that reads it goes on at once, maybe before `put` has returned here, and must not take it for a stranger's.
        key, putter = (thread_id, namespace, checkpoint_id), _current_flow()
        with self._lock:
            before = self._origins.get(key)
            self._keep(key, _CheckpointOrigin(_How.PUT, putter, is_left_over=None))
        try:
            yield
        except ChatledgerError:
            with self._lock:
                self._origins.pop(key, None)
                if before is not None:
                    self._keep(key, before)
            raise
        with self._lock:
            self._keep(key, _CheckpointOrigin(_How.PUT, putter, is_left_over=_is_over(putter)))

    def is_continuing(self, thread_id: str, namespace: str, parent_id: str | None) -> bool:
        """Whether a checkpoint that is put below that parent is meant to continue the thread."""
        origin = self._origins.get((thread_id, namespace, parent_id))
        return origin is not None and origin.how not in {_How.BY_NAME, _How.MISSED}

    def was_missed(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        """Whether it was looked for by its id, and was not there: a run that goes on from it takes nothing for its state."""
        origin = self._origins.get((thread_id, namespace, checkpoint_id))
        return origin is not None and origin.how is _How.MISSED

    def may_branch(self, thread_id: str, namespace: str, parent_id: str | None, latest_id: str) -> bool:
        """Whether a checkpoint that is put below that parent may begin a branch beside the latest."""
        parent = self._origins.get((thread_id, namespace, parent_id))
        latest = self._origins.get((thread_id, namespace, latest_id))
        if latest is None or latest.putter is None:
            return False
        # No run ends by itself before all that it puts is stored.
        is_left_over = _is_over(latest.putter) if latest.is_left_over is None else latest.is_left_over
        here = _current_flow()
        # Of a flow that has ended only the reference is left to compare.
        is_own = is_left_over or latest.putter is here or (here() is not None and here() is latest.putter())
        return is_own or (parent is not None and parent.how is _How.PUT)

    def was_put(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        origin = self._origins.get((thread_id, namespace, checkpoint_id))
        return origin is not None and origin.putter is not None

    def _keep(self, key: _Key, origin: _CheckpointOrigin) -> None:
        self._origins[key] = origin
        self._origins.move_to_end(key)
        if len(self._origins) > _MAX_KNOWN:
            self._origins.popitem(last=False)


def begin_flow() -> None:
    """Note that a run reads a thread here: what it puts, LangGraph puts from other tasks and threads, in copies of this context."""
    _flow.set(_here())


def need_flow() -> None:
    """Begin a flow, unless the context has one already."""
    if _flow.get() is None:
        begin_flow()


def _current_flow() -> Flow:
    return _flow.get() or _here()


def _here() -> Flow:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    return weakref.ref(task or threading.current_thread())


def _is_over(flow: Flow) -> bool:
    runner = flow()
    if isinstance(runner, asyncio.Task):
        return runner.done()
    return runner is None or not runner.is_alive()


Refresh = Literal["write", "read"]
RUNTIME: Final = "python"
VALUES: Final = "channel_values"
ASSISTANT_ID: Final = "assistant_id"
"""The key in `configurable`, and in the metadata, which LangGraph makes of it."""

_logger = logging.getLogger(__name__)
_MAX_MIXED: Final = 10_000


class AssistantThread(str):
    """
    The id of a thread, with the assistant whose checkpoint it was read from.

    To read the state of a subgraph, LangGraph keeps only the id of the thread from the config of a checkpoint.
    """

    __slots__ = ("assistant_id",)

    assistant_id: str

    def __new__(cls, thread_id: str, assistant_id: str = "") -> Self:
        """Make the id; a copy is made without an assistant, and gets it afterwards."""
        made = super().__new__(cls, thread_id)
        made.assistant_id = assistant_id
        return made


class BoundSaver(BaseCheckpointSaver[Any]):
    """The parts of a saver, and the way between LangGraph's namespaces and those that are stored."""

    def __init__(
        self,
        ledger: Ledger | AsyncLedger,
        *,
        serde: SerializerProtocol | None = None,
        allow: Collection[type] = (),
        is_fenced: bool = True,
        by_assistant: bool = False,
        runtime: str = RUNTIME,
        ttl_seconds: float | None = None,
        refresh: Refresh = "write",
    ) -> None:
        if not isinstance(ledger, Ledger | AsyncLedger):
            msg = (
                f"LedgerSaver needs a Ledger or an AsyncLedger, not {type(ledger).__name__}: open one with "
                "chatledger.open(location), or both at once with LedgerSaver.from_conn_string(location)"
            )
            raise ConfigurationError(msg)
        classes = checked_classes(allow)
        if serde is not None and classes:
            msg = "allow= is for the default serializer; tell the one that you give as serde= which classes it may load"
            raise ConfigurationError(msg)
        super().__init__(serde=serde or StateSerializer(classes))
        self._ledger = ledger
        self._expectations, self._is_fenced = Expectations(), is_fenced
        self._by_assistant, self._mixed = by_assistant, set[str]()
        self._runtime = runtime
        self._ttl_ms = None if ttl_seconds is None else milliseconds(ttl_seconds, "ttl_seconds")
        self._is_refreshed_by_reads = check_choice(refresh, ("write", "read"), "refresh") == "read"
        self._root: str | None = None

    @property
    def serde(self) -> SerializerProtocol:
        """The serializer. As in any saver of LangGraph, another one may be set; the two share no decoded values."""
        return self._serde

    @serde.setter
    def serde(self, serde: SerializerProtocol) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._serde = serde
        self._values, self._decoded = Values(serde), Decoded()

    @property
    def ledger(self) -> Ledger:
        """The ledger that the checkpoints are on; for an `AsyncLedger` the ledger behind it, which is opened if it is not yet."""
        return self._ledger if isinstance(self._ledger, Ledger) else self._ledger.blocking()

    @cached_property
    def _threads(self) -> Threads:
        return Threads(self.ledger)

    @property
    def namespace(self) -> str | None:
        """The namespace that this saver is bound to, such as that of an assistant; None when it is not."""
        return self._root

    def for_assistant(self, assistant_id: str) -> Self:
        """
        Return this saver bound to one assistant: it sees, writes and deletes only what belongs to it.

        LangGraph's namespace `""` is stored as `assistant:<id>`, and `<sub>` as `assistant:<id>|<sub>`.

        Raises:
            NamespaceError: The id is empty or contains `|`.
        """
        return self.for_namespace(assistant_namespace(assistant_id))

    def for_namespace(self, checkpoint_ns: str) -> Self:
        """
        Return this saver bound to a namespace, which may be any text: it sees, writes and deletes only what is in it or below it.

        LangGraph's namespace `""` is stored as that one, and `<sub>` as `<that one>|<sub>`. With `""` it is bound to none.

        Raises:
            InvalidValueError: It is too long, or no text.
        """
        bound = copy.copy(self)
        bound._root, bound._by_assistant = check_namespace(checkpoint_ns) or None, False  # noqa: SLF001 - of its own class
        return bound

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return this saver with a serializer that may load more; the two share no decoded values."""
        return cast("Self", super().with_allowlist(extra_allowlist))

    def _tuple(self, stored: StoredCheckpoint, reader: Reader) -> CheckpointTuple:
        record = stored.record
        # What another runtime wrote is in a form that this serializer does not know.
        is_ours = record.runtime == self._runtime
        checkpoint: dict[str, Any] = {"id": record.id}
        if is_ours:
            checkpoint = unpack(self._serde.loads_typed(record.frames[CHECKPOINT]), record.id)
        fields = record.fields if is_ours else {}
        checkpoint[VALUES] = {name: reader.decode(ref.digest, stored.pieces) for name, ref in fields.items()}
        parent_id = stored.parent_id
        return CheckpointTuple(
            config=self._config(stored.thread_id, record.line, record.id),
            checkpoint=cast("Checkpoint", checkpoint),
            metadata=self._metadata(record),
            parent_config=None if parent_id is None else self._config(stored.thread_id, record.line, parent_id),
            pending_writes=[
                (write.task_id, write.channel, reader.decode(write.digest, stored.pieces)) for write in stored.writes
            ]
            if is_ours
            else [],
        )

    def _learn(self) -> None:
        """Note the classes of the calling graph, which a worker thread does not have among its callers: call it before."""
        if isinstance(self._serde, StateSerializer):
            self._serde.learn(self._decoded.forget)

    def _reader(self) -> Reader:
        self._learn()
        return Reader(self._serde, self._decoded.makers)

    def _metadata(self, record: VersionRecord) -> Any:
        return self._serde.loads_typed(record.frames[METADATA])

    def _config(self, thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
        configurable = {
            "thread_id": thread_id,
            "checkpoint_ns": self._shown(namespace),
            "checkpoint_id": checkpoint_id,
        }
        if self._by_assistant and (assistant_id := root_of(namespace).removeprefix(ASSISTANT)):
            configurable |= {"thread_id": AssistantThread(thread_id, assistant_id), ASSISTANT_ID: assistant_id}
        return {"configurable": configurable}

    def _place(self, config: RunnableConfig) -> tuple[str, str]:
        """The thread, and the namespace as it is stored."""
        thread_id, namespace = thread_id_of(config), config.get("configurable", {}).get("checkpoint_ns") or ""
        root = self._root_for(config)
        if root is None:
            return thread_id, namespace
        return thread_id, f"{root}|{namespace}" if namespace else root

    def _root_for(self, config: RunnableConfig) -> str | None:
        """The namespace of the assistant whose checkpoints a config is about; None when it is about those of none."""
        if not self._by_assistant:
            return self._root
        if assistant_id := self._assistant_in(config):
            return assistant_namespace(assistant_id)
        thread_id = thread_id_of(config)
        root = self._only_root(thread_id, config.get("configurable", {}).get("checkpoint_ns") or "")
        if root is None:
            msg = (
                f"a LedgerSaver with by_assistant=True needs to know whose thread {thread_id!r} is: "
                "{'configurable': {'thread_id': ..., 'assistant_id': '...'}}"
            )
            raise InvalidValueError(msg)
        return root or None

    def _assistant_in(self, config: RunnableConfig) -> str | None:
        """The assistant that a config names; None where it names none, or the saver does not go by assistants."""
        if not self._by_assistant:
            return None
        configurable = config.get("configurable", {})
        thread_id = configurable.get("thread_id")
        if configurable.get(ASSISTANT_ID):
            return str(configurable[ASSISTANT_ID])
        return thread_id.assistant_id if isinstance(thread_id, AssistantThread) else None

    def _only_root(self, thread_id: str, shown: str = "") -> str | None:
        """
        The namespace of a thread's only assistant, `""` if it has checkpoints of none; None for an empty thread.

        Of several, the assistant that has the namespace `shown` of a subgraph, whose ids are unique.
        """
        names = self._threads.namespaces(thread_id)
        roots = list(dict.fromkeys(map(root_of, names)))
        if len(roots) > 1 and shown:
            roots = [root for root in roots if f"{root}|{shown}".removeprefix("|") in names] or roots
        if len(roots) > 1:
            msg = (
                f"thread {thread_id!r} has the namespaces {', '.join(map(repr, roots))}: name one, use for_assistant, "
                "or give the assistant_id of a saver with by_assistant=True"
            )
            raise InvalidValueError(msg)
        return roots[0] if roots else None

    def _shown(self, namespace: str) -> str:
        root = root_of(namespace) if self._by_assistant else self._root
        return namespace[len(root) + 1 :] if root else namespace

    def _is_ours(self, namespace: str) -> bool:
        return self._root is None or is_within(namespace, self._root)

    def _note_assistant(self, config: RunnableConfig, read: CheckpointTuple) -> None:
        """Warn, once for each thread, when an assistant goes on from another one's state."""
        if self._root is not None or self._by_assistant:
            return
        asking, wrote = config.get("configurable", {}).get(ASSISTANT_ID), read.metadata.get(ASSISTANT_ID)
        if not asking or not wrote or str(asking) == str(wrote) or (thread_id := thread_id_of(config)) in self._mixed:
            return
        if len(self._mixed) < _MAX_MIXED:
            self._mixed.add(thread_id)
            _logger.warning(
                "the assistants %r and %r share one state on thread %r; to keep theirs apart, use "
                "LedgerSaver(ledger, by_assistant=True), or for_assistant(...) for each",
                str(wrote),
                str(asking),
                thread_id,
            )


def thread_id_of(config: RunnableConfig) -> str:
    """Return the thread that a config is about, or raise `InvalidValueError`."""
    thread_id = config.get("configurable", {}).get("thread_id")
    if thread_id is None or thread_id == "":
        msg = "the config needs a thread_id: {'configurable': {'thread_id': '...'}}"
        raise InvalidValueError(msg)
    return str(thread_id)
