"""
Everything chatledger raises on purpose, named by what the caller may conclude.

    ChatledgerError
    ├─ InvalidValueError            the call cannot succeed as written; nothing was written        (also ValueError)
    │  ├─ SelfParentError           a message names itself as its parent
    │  ├─ PayloadTooLargeError      an event would exceed the size limit
    │  ├─ AmbiguousEditError        one save edits messages that do not lie on one chain
    │  ├─ MissingCodecError         a message fragment has no codec, or is still lazy
    │  ├─ NamespaceError            the namespace or the id of an assistant is malformed
    │  ├─ UnknownLazyTypeError      nobody knows how to resolve such a lazy fragment
    │  └─ FragmentConversionError   a fragment cannot be converted to or from its serialized form
    ├─ ResolverError                a computed value inside a fragment failed
    ├─ NotFoundError                there is no such thing, or it is not yours to see             (also LookupError)
    │  ├─ ChatNotFoundError
    │  ├─ MessageNotFoundError
    │  │  └─ ParentNotFoundError    the parent is not stored in the same chat
    │  ├─ BranchNotFoundError
    │  ├─ CheckpointNotFoundError
    │  ├─ RunNotFoundError
    │  ├─ RegenerationNotFoundError
    │  └─ ModelNotFoundError        there are no prices and limits of that model
    ├─ WrongChatError               the message belongs to another chat; nothing was written
    ├─ AlreadyExistsError           the name or id is taken; nothing was written
    │  ├─ ChatExistsError
    │  ├─ BranchExistsError
    │  ├─ CheckpointExistsError     the checkpoint id of a thread stands for another content or parent
    │  ├─ RunConflictError          the run id, or that of a regeneration, stands for something else
    │  └─ MessageConflictError      the message id exists with other content, or in another chat
    ├─ EmptyChatError               the branch has no stored message yet
    ├─ ConflictError                somebody else was faster; nothing was written, read again and decide anew
    │  ├─ HeadConflictError         the branch moved since it was read
    │  ├─ RunStatusError            the run has ended, or is not at the point where that can happen
    │  ├─ PlanOutdatedError         runs changed since the regeneration was planned
    │  ├─ UpdateConflictError       `update_chat` could not commit before its deadline
    │  ├─ CheckpointConflictError   another writer or run went on from the same checkpoint of a thread
    │  └─ StateConflictError        another version of a graph's state came meanwhile
    ├─ RuntimeMismatchError         another runtime wrote the checkpoint, and alone can resume it
    ├─ AccessDeniedError            this identity may not do that
    │  └─ OwnerMismatchError        the chat belongs to another user
    ├─ ConfigurationError           the ledger cannot be opened like this; nothing was changed
    │  ├─ LedgerLockedError         another process owns the data directory and cannot be reached
    │  ├─ UnsupportedFormatError    the data were written by a newer chatledger
    │  └─ LogRefusedError           the log's server refused the credentials
    ├─ LogUnavailableError          the log did not answer; the outcome may be unknown, retrying is safe
    │  ├─ LogFullError              the disk or the log's storage is full; nothing was written
    │  └─ ResourceError             no file descriptor, memory or temporary folder; retry when there is
    ├─ ChainIntegrityError          a cycle or a dangling parent in foreign data, or a hole or mismatch in stored events
    │  ├─ LogRegressedError         the log ends before a position that was already seen
    │  └─ QuarantinedError          the chat or thread lost events, or has foreign messages; nothing is shown or added
    ├─ CorruptStateError            a stored value cannot be decoded or verified
    ├─ ProjectionError              a custom projection failed, or another version of it is in use
    └─ LedgerClosedError            the ledger was closed, or opened before a fork

Every class carries its facts as attributes. Messages name chats, messages, branches and positions, never user ids or content.
"""

from .absent import (
    BranchNotFoundError,
    ChatNotFoundError,
    CheckpointNotFoundError,
    EmptyChatError,
    MessageNotFoundError,
    ModelNotFoundError,
    ParentNotFoundError,
    RegenerationNotFoundError,
    RunNotFoundError,
    WrongChatError,
)
from .base import (
    AccessDeniedError,
    AlreadyExistsError,
    ChatledgerError,
    ConfigurationError,
    ConflictError,
    InvalidValueError,
    NotFoundError,
)
from .conflicts import (
    CheckpointConflictError,
    HeadConflictError,
    OwnerMismatchError,
    PlanOutdatedError,
    RunStatusError,
    RuntimeMismatchError,
    StateConflictError,
    UpdateConflictError,
)
from .logs import (
    ChainIntegrityError,
    CorruptStateError,
    LedgerClosedError,
    LedgerLockedError,
    LogFullError,
    LogRefusedError,
    LogRegressedError,
    LogUnavailableError,
    ProjectionError,
    QuarantinedError,
    ResourceError,
    UnsupportedFormatError,
)
from .taken import (
    BranchExistsError,
    ChatExistsError,
    CheckpointExistsError,
    MessageConflictError,
    RunConflictError,
)
from .values import (
    AmbiguousEditError,
    FragmentConversionError,
    MissingCodecError,
    NamespaceError,
    PayloadTooLargeError,
    ResolverError,
    SelfParentError,
    UnknownLazyTypeError,
)

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
    "CorruptStateError",
    "EmptyChatError",
    "FragmentConversionError",
    "HeadConflictError",
    "InvalidValueError",
    "LedgerClosedError",
    "LedgerLockedError",
    "LogFullError",
    "LogRefusedError",
    "LogRegressedError",
    "LogUnavailableError",
    "MessageConflictError",
    "MessageNotFoundError",
    "MissingCodecError",
    "ModelNotFoundError",
    "NamespaceError",
    "NotFoundError",
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
    "UnknownLazyTypeError",
    "UnsupportedFormatError",
    "UpdateConflictError",
    "WrongChatError",
)
