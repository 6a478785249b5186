"""Others were faster, or it belongs to somebody else."""

from .base import AccessDeniedError, ChatledgerError, ConflictError


class HeadConflictError(ConflictError):
    """
    A branch moved since it was read.

    Nothing was written. Read the chain from `actual` and decide again.
    """

    def __init__(self, chat_id: str, branch: str, *, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"branch {branch!r} of chat {chat_id!r} is at {actual!r}, expected {expected!r}; read it again and retry"
        )
        self.chat_id, self.branch, self.expected, self.actual = chat_id, branch, expected, actual


class RunStatusError(ConflictError):
    """The run has ended, which is final, or is not at the point where that can happen. Nothing was written."""

    def __init__(self, chat_id: str, run_id: str, *, status: str, wanted: str) -> None:
        hint = {
            "awaiting_approval": "approve_regeneration allows it",
            "waiting": "repeat the runs that it depends on first",
            "running": "only a pending run can be started",
        }.get(status, "that is final; record a new run")
        super().__init__(f"run {run_id!r} of chat {chat_id!r} is {status!r} and can not become {wanted!r}: {hint}")
        self.chat_id, self.run_id, self.status, self.wanted = chat_id, run_id, status, wanted


class PlanOutdatedError(ConflictError):
    """Runs of the chat changed since the regeneration was planned. Nothing was written."""

    def __init__(self, chat_id: str, message_id: str) -> None:
        super().__init__(f"runs of chat {chat_id!r} changed since the edit of {message_id!r} was planned; plan again")
        self.chat_id, self.message_id = chat_id, message_id


class UpdateConflictError(ConflictError):
    """A command lost every race for its chat until its deadline. Nothing was written."""

    def __init__(self, chat_id: str, *, attempts: int) -> None:
        super().__init__(f"chat {chat_id!r} kept changing: {attempts} attempts lost the race; try again")
        self.chat_id, self.attempts = chat_id, attempts


class CheckpointConflictError(ConflictError):
    """
    Another writer, or another run of the same one, went on from the same checkpoint of a thread.

    Nothing was written; read the thread again.
    """

    def __init__(
        self, thread_id: str, namespace: str, *, parent_id: str | None, latest_id: str, is_own: bool = False
    ) -> None:
        who = "another run of this saver" if is_own else "another writer"
        super().__init__(
            f"thread {thread_id!r} (namespace {namespace!r}) was continued from checkpoint {parent_id!r} by {who} and is at "
            f"{latest_id!r}; read it again, or fork by naming the checkpoint"
        )
        self.thread_id, self.namespace, self.parent_id, self.latest_id = thread_id, namespace, parent_id, latest_id
        self.is_own = is_own


class StateConflictError(ConflictError):
    """Another version of a graph's state came meanwhile. Nothing was written; read the state again."""

    def __init__(self, state_id: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"state {state_id!r} is at version {actual}, and the change was made for version {expected}; read it again and "
            "decide anew (0 stands for no state)"
        )
        self.state_id, self.expected, self.actual = state_id, expected, actual


class RuntimeMismatchError(ChatledgerError):
    """A checkpoint was written by another runtime, which alone can resume it."""

    def __init__(self, thread_id: str, checkpoint_id: str, *, found: str, expected: str) -> None:
        super().__init__(
            f"checkpoint {checkpoint_id!r} of thread {thread_id!r} was written by runtime {found!r}, and this is {expected!r}: "
            "resume it there, or begin a new thread"
        )
        self.thread_id, self.checkpoint_id, self.found, self.expected = thread_id, checkpoint_id, found, expected


class OwnerMismatchError(AccessDeniedError):
    """The chat belongs to another user. Nothing was written."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"chat {chat_id!r} belongs to another user")
        self.chat_id = chat_id
