"""
Everything chatledger raises on purpose, named by what the caller may conclude.

Every class carries its facts as attributes. Messages name chats, messages, branches and positions, never user ids or content, and no method or route: they are read at each door.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from .legal_hold import LegalHold
from .wire import iso


def _rebuild(cls: type["ChatledgerError"], message: str, facts: dict[str, Any]) -> "ChatledgerError":
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(facts)
    return error


class ChatledgerError(Exception):
    """Base of every error that chatledger raises on purpose."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The default calls the class with `args`, which most of these classes do not take.
        return _rebuild, (type(self), str(self), dict(self.__dict__))


class InvalidValueError(ChatledgerError, ValueError):
    """An id, name, number or JSON value breaks a rule. Nothing was written."""


class NotFoundError(ChatledgerError, LookupError):
    """There is no such thing, or it is not yours to see."""


class AlreadyExistsError(ChatledgerError):
    """The name or id is taken. Nothing was written."""


class ConflictError(ChatledgerError):
    """Somebody else was faster. Nothing was written; read again and decide anew."""


class AccessDeniedError(ChatledgerError):
    """The identity may not do that."""


class ConfigurationError(ChatledgerError):
    """The ledger cannot be opened like this. Nothing was changed."""


class ChatNotFoundError(NotFoundError):
    """The chat does not exist, or is not yours to see."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"no chat {chat_id!r}; check the id, or create it first")
        self.chat_id = chat_id


class MessageNotFoundError(NotFoundError):
    """The message does not exist, or is not yours to see."""

    def __init__(self, message_id: str, *, chat_id: str | None = None) -> None:
        where = "" if chat_id is None else f" in chat {chat_id!r}"
        super().__init__(f"no message {message_id!r}{where}")
        self.message_id, self.chat_id = message_id, chat_id


class ParentNotFoundError(MessageNotFoundError):
    """The parent is stored neither in this chat nor earlier in the same call. Nothing was written."""

    def __init__(self, message_id: str, *, parent_id: str, chat_id: str) -> None:
        super().__init__(parent_id, chat_id=chat_id)
        self.args = (
            (
                f"message {message_id!r} names the parent {parent_id!r}, which is not in chat {chat_id!r}; "
                "parents come before their children"
            ),
        )
        self.message_id, self.parent_id = message_id, parent_id


class BranchNotFoundError(NotFoundError):
    """The chat has no branch of that name."""

    def __init__(self, chat_id: str, branch: str) -> None:
        super().__init__(f"chat {chat_id!r} has no branch {branch!r}; the list of its branches shows what it has")
        self.chat_id, self.branch = chat_id, branch


class CheckpointNotFoundError(NotFoundError):
    """The chat has no checkpoint of that name."""

    def __init__(self, chat_id: str, checkpoint: str) -> None:
        super().__init__(
            f"chat {chat_id!r} has no checkpoint {checkpoint!r}; the list of its checkpoints shows what it has"
        )
        self.chat_id, self.checkpoint = chat_id, checkpoint


class RunNotFoundError(NotFoundError):
    """The chat has no such run."""

    def __init__(self, chat_id: str, run_id: str) -> None:
        super().__init__(f"chat {chat_id!r} has no run {run_id!r}; record it first")
        self.chat_id, self.run_id = chat_id, run_id


class RegenerationNotFoundError(NotFoundError):
    """The chat has no such regeneration."""

    def __init__(self, chat_id: str, regeneration_id: str) -> None:
        super().__init__(f"chat {chat_id!r} has no regeneration {regeneration_id!r}; begin it first")
        self.chat_id, self.regeneration_id = chat_id, regeneration_id


class LiveStreamNotFoundError(NotFoundError):
    """The chat has no such live stream: it was dropped or erased, or committed a while ago."""

    def __init__(self, chat_id: str, stream_id: str) -> None:
        super().__init__(
            f"chat {chat_id!r} has no live stream {stream_id!r}, or no more; what was committed is among its messages"
        )
        self.chat_id, self.stream_id = chat_id, stream_id


class ModelNotFoundError(NotFoundError):
    """There are no prices and limits of that model."""

    def __init__(self, model_id: str) -> None:
        super().__init__(f"no model {model_id!r}; give its prices and limits in the table of models")
        self.model_id = model_id


class OtherShareError(ChatledgerError):
    """
    Nodes that hold another share of the chats have it, and this ledger does not. Ask one of them.

    `share` is (index, count), as `chatledger.open` takes it; None for what only a ledger with all shares holds.
    """

    def __init__(self, what: str, share: tuple[int, int] | None) -> None:
        if share is None:
            super().__init__(f"{what} is in no share of the chats; ask a node that has the ledger open without share=")
        else:
            number, total = share
            super().__init__(
                f"{what} is in share {number} of {total}; ask a node that has it open with share=({number}, {total})"
            )
        self.share = None if share is None else (share[0], share[1])


class WrongChatError(ChatledgerError):
    """The message belongs to another chat. Nothing was written."""

    def __init__(self, message_id: str, *, chat_id: str) -> None:
        super().__init__(f"message {message_id!r} does not belong to chat {chat_id!r}")
        self.message_id, self.chat_id = message_id, chat_id


class HeldError(ChatledgerError):
    """
    A legal hold keeps it. Nothing was deleted.

    `hold` says what was held, since when, by whom and why.
    """

    def __init__(self, what: str, hold: LegalHold) -> None:
        on = (
            f"{hold.kind} {hold.id!r}"
            if hold.kind in {"chat", "thread"}
            else "its owner"
            if hold.kind == "user"
            else "it"
        )
        super().__init__(
            f"{what} is under a legal hold, put on {on} at {iso(hold.held_at)}; nothing was deleted. Release the hold first, "
            "or leave it as it is"
        )
        self.hold = hold


class LastBranchError(ChatledgerError):
    """The branch is the only one of its chat, which cannot be without. Nothing was written."""

    def __init__(self, chat_id: str, branch: str) -> None:
        super().__init__(
            f"branch {branch!r} is the only one of chat {chat_id!r}; create another one first, or rename it, "
            "or empty it by moving its head"
        )
        self.chat_id, self.branch = chat_id, branch


class EmptyChatError(ChatledgerError):
    """The branch has no stored message yet."""

    def __init__(self, chat_id: str, branch: str) -> None:
        super().__init__(f"branch {branch!r} of chat {chat_id!r} has no stored message yet; append one first")
        self.chat_id, self.branch = chat_id, branch


class ChatExistsError(AlreadyExistsError):
    """A chat with that id exists already. Nothing was written."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"chat {chat_id!r} exists already; choose another id, or update it if it is yours")
        self.chat_id = chat_id


class BranchExistsError(AlreadyExistsError):
    """The chat has a branch of that name already. Nothing was written."""

    def __init__(self, chat_id: str, branch: str) -> None:
        super().__init__(
            f"chat {chat_id!r} has a branch {branch!r} already; choose another name, or let fork choose one"
        )
        self.chat_id, self.branch = chat_id, branch


class MessageConflictError(AlreadyExistsError):
    """The message id exists with other content, or in another chat. Nothing was written; messages never change."""

    def __init__(self, message_id: str, *, chat_id: str, other_chat: bool = False) -> None:
        why = "is used in another chat" if other_chat else "exists with other content or another parent"
        super().__init__(f"message id {message_id!r} {why}; chat {chat_id!r} was not changed, use a new id")
        self.message_id, self.chat_id, self.other_chat = message_id, chat_id, other_chat


class CheckpointExistsError(AlreadyExistsError):
    """The id of a checkpoint stands for another content or parent. Nothing was written; checkpoints never change."""

    def __init__(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        super().__init__(
            f"checkpoint {checkpoint_id!r} of thread {thread_id!r} (namespace {namespace!r}) is stored with other content or "
            "another parent, and was not changed; give what is new an id of its own"
        )
        self.thread_id, self.namespace, self.checkpoint_id = thread_id, namespace, checkpoint_id


class RunConflictError(AlreadyExistsError):
    """The run id, or that of a regeneration, stands for something else in the chat. Nothing was written."""

    def __init__(self, chat_id: str, run_id: str, *, why: str) -> None:
        super().__init__(f"{run_id!r} of chat {chat_id!r} {why}")
        self.chat_id, self.run_id = chat_id, run_id


class SelfParentError(InvalidValueError):
    """A message names itself as its parent. Nothing was written."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"message {message_id!r} names itself as its parent; name an earlier message, or none for a root"
        )
        self.message_id = message_id


class PayloadTooLargeError(InvalidValueError):
    """An event would exceed the configured size limit. Nothing was written; content is never cut."""

    def __init__(self, chat_id: str, *, size_bytes: int, limit_bytes: int, what: str = "an event of chat") -> None:
        super().__init__(
            f"{what} {chat_id!r} takes {size_bytes:,} bytes, the limit is {limit_bytes:,}; "
            "store large content elsewhere and keep a reference to it"
        )
        self.chat_id, self.size_bytes, self.limit_bytes = chat_id, size_bytes, limit_bytes


class ContextTooLargeError(InvalidValueError):
    """
    The newest turn of a conversation, with the system prompt, exceeds the limit of a context. Nothing is cut.

    `argument` is the limit that is exceeded, `last_n` or `max_tokens`; `size` and `limit` are messages or tokens;
    `system_tokens` is the share of the system prompt.
    """

    def __init__(self, argument: str, *, size: int, limit: int, system_tokens: int = 0) -> None:
        taken = f"has {size:,} messages" if argument == "last_n" else f"takes {size:,} tokens"
        share = f" with the {system_tokens:,} of the system prompt" if system_tokens else ""
        super().__init__(
            f"the newest turn {taken}{share}, {size - limit:,} more than {argument}={limit}; turns are given whole, so raise "
            "the limit, or shorten what was said"
        )
        self.argument, self.size, self.limit, self.system_tokens = argument, size, limit, system_tokens


class LiveLimitError(InvalidValueError):
    """A live stream has reached its limit of size or age. What was written stays; commit or discard it."""

    def __init__(self, chat_id: str, stream_id: str, *, what: str) -> None:
        super().__init__(
            f"live stream {stream_id!r} of chat {chat_id!r} {what}, and takes no more chunks; what was written stays, "
            "so commit or discard it"
        )
        self.chat_id, self.stream_id = chat_id, stream_id


class AmbiguousEditError(InvalidValueError):
    """One save edits messages that do not lie on one chain. Nothing was written."""


class MissingCodecError(InvalidValueError):
    """A message fragment has no codec, or is still lazy, where its data are needed. Nothing was written."""

    def __init__(self, name: str, *, fragment_id: str | None = None) -> None:
        which = "" if fragment_id is None else f" (id {fragment_id!r})"
        super().__init__(
            f"message fragment {name!r}{which} has no codec, or is still lazy; user(), assistant() and message() make "
            "fragments that have one, and a context engine resolves lazy ones"
        )
        self.name, self.fragment_id = name, fragment_id


class UnknownLazyTypeError(InvalidValueError):
    """Nobody knows how to resolve a lazy fragment of this type. Nothing was written."""

    def __init__(self, lazy_type: str) -> None:
        super().__init__(
            f"unknown lazy type {lazy_type!r}; last_assistant_message() makes one of type 'last-assistant'"
        )
        self.lazy_type = lazy_type


class NamespaceError(InvalidValueError):
    """A namespace or the id of an assistant is malformed."""


class FragmentConversionError(InvalidValueError):
    """A fragment cannot be converted to or from its serialized form."""


class TranslationError(InvalidValueError):
    """
    A chain says something that the form it is wanted in cannot say, and `strict` forbids leaving it out.

    `message_id` says where, `what` names it (such as `reasoning` or `file`), and `why` is the reason in words.
    """

    def __init__(self, form: str, message_id: str, what: str, why: str) -> None:
        super().__init__(f"{what} in message {message_id!r} has no place in the form {form!r}: {why}")
        self.form, self.message_id, self.what, self.why = form, message_id, what, why


class ResolverError(ChatledgerError):
    """A computed value inside a fragment failed, or a codec, form, renderer or tokenizer of yours; `path` says where. The cause is chained."""

    def __init__(self, path: str, reason: str, *, what: str = "computed value") -> None:
        super().__init__(f"the {what} at {path} {reason}")
        self.path = path


class HeadConflictError(ConflictError):
    """
    A branch moved since it was read.

    Nothing was written. Read the chain from `actual` and decide again.
    """

    def __init__(
        self,
        chat_id: str,
        branch: str,
        *,
        expected: str | None,
        actual: str | None,
        advice: str = "read it again and retry",
    ) -> None:
        super().__init__(f"branch {branch!r} of chat {chat_id!r} is at {actual!r}, expected {expected!r}; {advice}")
        self.chat_id, self.branch, self.expected, self.actual = chat_id, branch, expected, actual


class MergeConflictError(ConflictError):
    """
    Both sides of a merge changed a field, and no reducer says what both make. Nothing was written.

    Args:
        field: The field.
        base, ours, theirs: Its values where both began, and now; None where it is not there.
    """

    def __init__(self, field: str, *, base: Any, ours: Any, theirs: Any) -> None:
        super().__init__(
            f"both sides of the merge changed {field!r}, and no reducer makes one value of theirs; give it one in reducers=, or "
            "decide, and merge again"
        )
        self.field, self.base, self.ours, self.theirs = field, base, ours, theirs


class LiveConflictError(ConflictError):
    """Another writer has the live stream, or it has ended; `status` says how it stands. What this call was to write is not in it."""

    def __init__(self, chat_id: str, stream_id: str, *, status: str) -> None:
        super().__init__(
            f"live stream {stream_id!r} of chat {chat_id!r} cannot be written here: it is {status}; its record tells more"
        )
        self.chat_id, self.stream_id, self.status = chat_id, stream_id, status


class RunStatusError(ConflictError):
    """The run has ended, which is final, or is not at the point where that can happen. Nothing was written."""

    def __init__(self, chat_id: str, run_id: str, *, status: str, wanted: str) -> None:
        hint = {
            "awaiting_approval": "approve it first",
            "waiting": "repeat the runs that it depends on first",
            "running": "only a pending run can be started",
            "pending": "start it first",
        }.get(status, "that is final; record a new run")
        super().__init__(f"run {run_id!r} of chat {chat_id!r} is {status!r} and cannot become {wanted!r}: {hint}")
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


class LedgerLockedError(ConfigurationError):
    """Another process owns the data directory and cannot be reached."""


class UnsupportedFormatError(ConfigurationError):
    """The data were written by a newer chatledger; upgrade to read them."""


class LogRefusedError(ConfigurationError):
    """The log's server refused the credentials."""


class LogUnavailableError(ChatledgerError):
    """
    The log did not answer in time.

    The outcome of a write may be unknown. Retrying it is safe: it happens at most once.
    """


class LogFullError(LogUnavailableError):
    """The disk, or what the server allows the log, is full. Nothing was written; free space and retry."""


class IndexFullError(LogUnavailableError):
    """
    The disk of the index is full, or the file may not grow. What is on the log is safe, and reads answer as they did before.

    `position` is that of the last event that the call has written: it is on the log, and in the index when there is room
    again. None where the call has written nothing: what it would read, or decide on, was written before. `path` is the
    folder of the index. Repeating the call with the same ids is safe: what it has written, it does not write again.
    """

    def __init__(self, path: str, reason: str, *, position: int | None = None) -> None:
        what = (
            "the index cannot take in what is on the log"
            if position is None
            else f"what was to be written is on the log, up to position {position}, and not in the index yet"
        )
        super().__init__(
            f"{what}: {path} cannot grow, {reason}. Make room there; repeating the call with the same ids is safe, and writes "
            "nothing twice"
        )
        self.path, self.reason, self.position = path, reason, position


class ResourceError(LogUnavailableError):
    """
    The operating system refuses what a call needs, such as a file descriptor, memory or a temporary folder.

    Stored data are not affected. Retrying is safe when the cause is gone; the message names it.
    """


class ChainIntegrityError(ChatledgerError):
    """A cycle or a dangling parent in foreign data, or a hole or mismatch in stored events."""

    def __init__(
        self, message: str, *, chat_id: str | None = None, position: int | None = None, version: int | None = None
    ) -> None:
        super().__init__(message)
        self.chat_id, self.position, self.version = chat_id, position, version


class LogRegressedError(ChainIntegrityError):
    """The log ends before a position that was already seen, so acknowledged events are gone. Nothing is written to it."""

    def __init__(self, *, last_position: int, seen_position: int) -> None:
        what = (
            f"the log ends at position {last_position}, but position {seen_position} was already seen"
            if last_position < seen_position
            else f"the event at position {seen_position} of the log is not the one that was seen there"
        )
        super().__init__(
            f"{what}: acknowledged events are missing. Restore the log from a backup. To accept the loss of a directory's log, run "
            "'chatledger doctor --repair'; of another one, remove its index and its witness"
        )
        self.last_position, self.seen_position = last_position, seen_position


class QuarantinedError(ChainIntegrityError):
    """
    A chat or thread is set apart: nothing of it is shown, and nothing is added to it. Others are served.

    It lost events that nothing could bring back, or somebody else published messages on its subject.
    """


class CorruptStateError(ChatledgerError):
    """A stored value cannot be decoded or verified. The attributes say where it is; None where that is unknown."""

    def __init__(
        self, message: str, *, chat_id: str | None = None, position: int | None = None, version: int | None = None
    ) -> None:
        super().__init__(message)
        self.chat_id, self.position, self.version = chat_id, position, version


class ProjectionError(ChatledgerError):
    """A custom projection cannot be read: it failed, or another version of it is in use. Everything else goes on."""

    def __init__(self, name: str, reason: str, *, position: int | None = None) -> None:
        super().__init__(f"projection {name!r} {reason}")
        self.name, self.position = name, position


class EmbeddingError(ChatledgerError):
    """The function of an embedding failed, or returned something else than vectors. Messages are found by their words meanwhile."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the function of embedding {name!r} {reason}")
        self.name = name


class LedgerClosedError(ChatledgerError):
    """The ledger was closed, or this process was forked from the one that opened it."""


__all__ = (
    "AccessDeniedError",
    "AlreadyExistsError",
    "AmbiguousEditError",
    "BranchExistsError",
    "BranchNotFoundError",
    "ChainIntegrityError",
    "ChatExistsError",
    "ChatNotFoundError",
    "ChatledgerError",
    "CheckpointConflictError",
    "CheckpointExistsError",
    "CheckpointNotFoundError",
    "ConfigurationError",
    "ConflictError",
    "ContextTooLargeError",
    "CorruptStateError",
    "EmbeddingError",
    "EmptyChatError",
    "FragmentConversionError",
    "HeadConflictError",
    "HeldError",
    "IndexFullError",
    "InvalidValueError",
    "LastBranchError",
    "LedgerClosedError",
    "LedgerLockedError",
    "LiveConflictError",
    "LiveLimitError",
    "LiveStreamNotFoundError",
    "LogFullError",
    "LogRefusedError",
    "LogRegressedError",
    "LogUnavailableError",
    "MergeConflictError",
    "MessageConflictError",
    "MessageNotFoundError",
    "MissingCodecError",
    "ModelNotFoundError",
    "NamespaceError",
    "NotFoundError",
    "OtherShareError",
    "OwnerMismatchError",
    "ParentNotFoundError",
    "PayloadTooLargeError",
    "PlanOutdatedError",
    "ProjectionError",
    "QuarantinedError",
    "RegenerationNotFoundError",
    "ResolverError",
    "ResourceError",
    "RunConflictError",
    "RunNotFoundError",
    "RunStatusError",
    "RuntimeMismatchError",
    "SelfParentError",
    "StateConflictError",
    "TranslationError",
    "UnknownLazyTypeError",
    "UnsupportedFormatError",
    "UpdateConflictError",
    "WrongChatError",
)


DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The second for text that is no UTF-8, the third for what is nested more deeply than Python recurses."""
