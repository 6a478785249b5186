"""The base of a saver: threads, a serializer, and the assistant that it may be bound to."""

import copy
from collections.abc import Collection
from typing import Any, Final, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.thread.namespaces import assistant_namespace, is_within
from chatledger.domain.thread.record import CheckpointRecord

from ...ledger.ledger import Ledger
from ...ledger.threads import StoredCheckpoint, Threads
from .expectations import Expectations
from .packing import unpack
from .reader import Makers, Reader
from .values import Values

RUNTIME: Final = "python"
VALUES: Final = "channel_values"


class BoundSaver(BaseCheckpointSaver[Any]):
    """The parts of a saver, and the way between LangGraph's namespaces and those that are stored."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        serde: SerializerProtocol | None = None,
        allow: Collection[type] = (),
        is_fenced: bool = True,
        runtime: str = RUNTIME,
    ) -> None:
        if not isinstance(ledger, Ledger):
            msg = (
                f"LedgerSaver needs a Ledger, not {type(ledger).__name__}: open one with chatledger.open(location), beside an "
                "AsyncLedger of the same location if need be; the async methods of the saver run in worker threads"
            )
            raise ConfigurationError(msg)
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=list(allow) or None))
        self._threads = Threads(ledger)
        self._expectations, self._is_fenced = Expectations(), is_fenced
        self._runtime = runtime
        self._root: str | None = None

    @property
    def serde(self) -> SerializerProtocol:
        """The serializer. Another one may be set, as of any saver of LangGraph; what one decoded is not given to the other."""
        return self._serde

    @serde.setter
    def serde(self, serde: SerializerProtocol) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._serde = serde
        self._values, self._makers = Values(serde), Makers()

    @property
    def ledger(self) -> Ledger:
        """The ledger that the checkpoints are on."""
        return self._threads.ledger

    @property
    def namespace(self) -> str | None:
        """The namespace of the assistant that this saver is bound to; None when it is not."""
        return self._root

    def for_assistant(self, assistant_id: str) -> Self:
        """
        Return this saver bound to one assistant: it sees, writes and deletes only what belongs to it.

        LangGraph's namespace `""` is stored as `assistant:<id>`, and `<sub>` as `assistant:<id>|<sub>`.

        Raises:
            NamespaceError: The id is empty or contains `|`.
        """
        bound = copy.copy(self)
        bound._root = assistant_namespace(assistant_id)  # noqa: SLF001 - of its own class
        return bound

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return this saver with a serializer that may load more; the two share no decoded values."""
        return cast("Self", super().with_allowlist(extra_allowlist))

    def _tuple(self, found: StoredCheckpoint, reader: Reader) -> CheckpointTuple:
        record = found.record
        is_ours = record.runtime == self._runtime
        checkpoint: dict[str, Any] = {"id": record.checkpoint_id}
        if is_ours:
            checkpoint = unpack(self.serde.loads_typed(record.checkpoint), record.checkpoint_id)
        channels = record.channels if is_ours else {}
        checkpoint[VALUES] = {name: reader.decode(digest, found.pieces) for name, digest in channels.items()}
        parent_id = found.parent_id
        return CheckpointTuple(
            config=self._config(found.thread_id, record.namespace, record.checkpoint_id),
            checkpoint=cast("Checkpoint", checkpoint),
            metadata=self._metadata(record),
            parent_config=None if parent_id is None else self._config(found.thread_id, record.namespace, parent_id),
            pending_writes=[
                (write.task_id, write.channel, reader.decode(write.digest, found.pieces)) for write in found.writes
            ]
            if is_ours
            else [],
        )

    def _reader(self) -> Reader:
        """One reading of values that belong together."""
        return Reader(self._serde, self._makers)

    def _metadata(self, record: CheckpointRecord) -> Any:
        return self.serde.loads_typed(record.metadata)

    def _config(self, thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": thread_id,
                "checkpoint_ns": self._shown(namespace),
                "checkpoint_id": checkpoint_id,
            }
        }

    def _place(self, config: RunnableConfig) -> tuple[str, str]:
        """The thread, and the namespace as it is stored."""
        return thread_id_of(config), self._stored(config.get("configurable", {}).get("checkpoint_ns") or "")

    def _stored(self, namespace: str) -> str:
        if self._root is None:
            return namespace
        return f"{self._root}|{namespace}" if namespace else self._root

    def _shown(self, namespace: str) -> str:
        return namespace if self._root is None else namespace[len(self._root) + 1 :]

    def _is_ours(self, namespace: str) -> bool:
        return self._root is None or is_within(namespace, self._root)


def thread_id_of(config: RunnableConfig) -> str:
    """
    The thread that a config is about.

    Raises:
        InvalidValueError: It names none.
    """
    thread_id = config.get("configurable", {}).get("thread_id")
    if thread_id is None or thread_id == "":
        msg = "the config needs a thread_id: {'configurable': {'thread_id': '...'}}"
        raise InvalidValueError(msg)
    return str(thread_id)
