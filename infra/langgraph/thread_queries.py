"""Questions about threads that LangGraph's interface does not have, and what is done to whole namespaces."""

from chatledger.domain.agents.namespaces import ASSISTANT
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.rules import check_count

from ..agents.thread_info import ThreadInfo
from ..agents.threads import StoredCheckpoint
from ..workers import in_thread
from .bound import BoundSaver
from .migration import Migration, plan_migration
from .thread_state import ThreadState, state_of


class ThreadQueries(BoundSaver):
    """
    The part of a saver that is about threads as a whole.

    Namespaces are here those that are stored: `assistant:<id>`, and `assistant:<id>|<sub>` below it.
    """

    def threads(self) -> list[ThreadInfo]:
        """The threads that have something of this saver's, the oldest first."""
        return [info for info in self._threads.infos() if any(map(self._is_ours, info.namespaces))]

    async def athreads(self) -> list[ThreadInfo]:
        """As `threads`."""
        return await in_thread(self.threads)

    def get_thread_state(
        self, thread_id: str, checkpoint_ns: str | None = None, checkpoint_id: str | None = None
    ) -> ThreadState | None:
        """
        The state of an agent on a thread; None when there is none. Also of checkpoints that another runtime wrote, without values.

        Args:
            thread_id: The thread.
            checkpoint_ns: The namespace, as it is stored. None: that of the saver's assistant; of a saver of all, the only one.
            checkpoint_id: The checkpoint; the newest when None.

        Raises:
            InvalidValueError: There are several assistants, and none is named.
        """
        namespace = self._root if checkpoint_ns is None else checkpoint_ns
        if namespace is None:
            namespace = self._only_root(thread_id)
        if namespace is None or not self._is_ours(namespace):
            return None
        found = self._threads.get(thread_id, namespace, checkpoint_id)
        return None if found is None else self._thread_state(found, is_live=checkpoint_id is None)

    async def aget_thread_state(
        self, thread_id: str, checkpoint_ns: str | None = None, checkpoint_id: str | None = None
    ) -> ThreadState | None:
        """As `get_thread_state`."""
        return await in_thread(lambda: self.get_thread_state(thread_id, checkpoint_ns, checkpoint_id))

    def get_thread_history(
        self, thread_id: str, checkpoint_ns: str | None = None, limit: int | None = 10, before: str | None = None
    ) -> list[ThreadState]:
        """
        The states of a thread, newest first; none of an unknown one.

        Args:
            thread_id: The thread.
            checkpoint_ns: Only of this namespace, as it is stored; of all when None.
            limit: At most so many; all when None.
            before: A checkpoint id; only those before it.
        """
        if limit is not None:
            check_count(limit, "limit")
        found = self._threads.checkpoints(thread_id, checkpoint_ns, within=self._root, before=before, limit=limit)
        return list(map(self._thread_state, found)) if limit != 0 else []

    async def aget_thread_history(
        self, thread_id: str, checkpoint_ns: str | None = None, limit: int | None = 10, before: str | None = None
    ) -> list[ThreadState]:
        """As `get_thread_history`."""
        return await in_thread(lambda: self.get_thread_history(thread_id, checkpoint_ns, limit, before))

    def delete_namespace(self, thread_id: str, checkpoint_ns: str) -> None:
        """
        Remove a namespace of a thread with those below it, for when an assistant is replaced.

        Raises:
            InvalidValueError: It is another assistant's than the saver's.
        """
        if not self._is_ours(checkpoint_ns):
            msg = f"this saver has {self._root!r} only, not {checkpoint_ns!r}; use the one that it was made from"
            raise InvalidValueError(msg)
        self._threads.delete(str(thread_id), within=checkpoint_ns)

    async def adelete_namespace(self, thread_id: str, checkpoint_ns: str) -> None:
        """As `delete_namespace`."""
        await in_thread(lambda: self.delete_namespace(thread_id, checkpoint_ns))

    def migrate_namespace(self, thread_id: str) -> Migration:
        """
        Copy checkpoints outside of assistants' namespaces to that of the assistant which their metadata name (`assistant_id`).

        Their writes come too, and the line of each assistant: the parent of a copy is the nearest ancestor of the same
        assistant. What is there already stays, and so do the originals; repeating copies nothing again.
        """
        with self._threads.reading(thread_id) as thread:
            moves, migration = plan_migration(thread, self._metadata, self._is_ours)
        self._threads.migrate(thread_id, moves)
        return migration

    async def amigrate_namespace(self, thread_id: str) -> Migration:
        """As `migrate_namespace`."""
        return await in_thread(lambda: self.migrate_namespace(thread_id))

    def _only_root(self, thread_id: str) -> str | None:
        roots = list(dict.fromkeys(map(_root_of, self._threads.namespaces(thread_id))))
        if len(roots) > 1:
            msg = f"thread {thread_id!r} has the namespaces {', '.join(map(repr, roots))}: say which one, or use for_assistant"
            raise InvalidValueError(msg)
        return roots[0] if roots else None

    def _thread_state(self, found: StoredCheckpoint, *, is_live: bool = False) -> ThreadState:
        record = found.record
        place = {
            "thread_id": found.thread_id,
            "checkpoint_ns": record.namespace,
            "checkpoint_id": record.checkpoint_id,
        }
        return state_of(
            self._tuple(found, self._values.reader()),
            found.writes if record.runtime == self._runtime else [],
            place=place,
            parent_id=found.parent_id,
            stored_at=record.stored_at,
            is_live=is_live,
        )


def _root_of(namespace: str) -> str:
    """The namespace of the assistant that it belongs to; `""` when it is none's."""
    return namespace.partition("|")[0] if namespace.startswith(ASSISTANT) else ""
