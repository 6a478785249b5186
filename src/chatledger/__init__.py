"""
State for conversations with AI agents: a DAG of immutable messages on an append-only log.

    import chatledger
    from chatledger import user

    with chatledger.open("./chatledger-data") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("Plan a weekend in Riga")])
"""

import typing as _t

from chatledger.domain.context.fragment import Fragment
from chatledger.domain.engine.reading import Head, Resolved
from chatledger.domain.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    AmbiguousEditError,
    BranchExistsError,
    BranchNotFoundError,
    ChainIntegrityError,
    ChatExistsError,
    ChatledgerError,
    ChatNotFoundError,
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    CorruptStateError,
    EmptyChatError,
    FragmentConversionError,
    HeadConflictError,
    InvalidValueError,
    LedgerClosedError,
    LedgerLockedError,
    LogFullError,
    LogRefusedError,
    LogRegressedError,
    LogUnavailableError,
    MessageConflictError,
    MessageNotFoundError,
    MissingCodecError,
    ModelNotFoundError,
    NotFoundError,
    OwnerMismatchError,
    ParentNotFoundError,
    PayloadTooLargeError,
    ResolverError,
    SelfParentError,
    UnknownLazyTypeError,
    UnsupportedFormatError,
    UpdateConflictError,
    WrongChatError,
)
from chatledger.domain.events import Recorded
from chatledger.domain.saving import Save, SavePreview, SaveResult
from chatledger.domain.values import (
    ANY,
    Branch,
    Chat,
    Checkpoint,
    Divergence,
    Graph,
    GraphBranch,
    GraphCheckpoint,
    GraphNode,
    Message,
    NewMessage,
    SearchHit,
    SearchHits,
)
from chatledger.infra.async_ledger import AsyncLedger
from chatledger.infra.engine import AsyncContextEngine, ContextEngine
from chatledger.infra.ledger import Ledger
from chatledger.infra.messages import assistant, assistant_text, message, user
from chatledger.infra.opening import open_async_ledger as open_async
from chatledger.infra.opening import open_ledger as open  # noqa: A004 - `chatledger.open` reads as `gzip.open` does

__all__ = [
    "ANY",
    "AccessDeniedError",
    "AlreadyExistsError",
    "AmbiguousEditError",
    "AsyncContextEngine",
    "AsyncLedger",
    "Branch",
    "BranchExistsError",
    "BranchNotFoundError",
    "ChainIntegrityError",
    "Chat",
    "ChatExistsError",
    "ChatNotFoundError",
    "ChatledgerError",
    "Checkpoint",
    "CheckpointNotFoundError",
    "ConfigurationError",
    "ConflictError",
    "ContextEngine",
    "CorruptStateError",
    "Divergence",
    "EmptyChatError",
    "Fragment",
    "FragmentConversionError",
    "Graph",
    "GraphBranch",
    "GraphCheckpoint",
    "GraphNode",
    "Head",
    "HeadConflictError",
    "InvalidValueError",
    "Ledger",
    "LedgerClosedError",
    "LedgerLockedError",
    "LogFullError",
    "LogRefusedError",
    "LogRegressedError",
    "LogUnavailableError",
    "Message",
    "MessageConflictError",
    "MessageNotFoundError",
    "MissingCodecError",
    "ModelNotFoundError",
    "NewMessage",
    "NotFoundError",
    "OwnerMismatchError",
    "ParentNotFoundError",
    "PayloadTooLargeError",
    "Recorded",
    "Resolved",
    "ResolverError",
    "Save",
    "SavePreview",
    "SaveResult",
    "SearchHit",
    "SearchHits",
    "SelfParentError",
    "UnknownLazyTypeError",
    "UnsupportedFormatError",
    "UpdateConflictError",
    "WrongChatError",
    "assistant",
    "assistant_text",
    "message",
    "open",
    "open_async",
    "user",
]

if _t.TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Read `__version__` from the installed metadata, on first use."""
        if name == "__version__":
            from importlib.metadata import version

            return version("chatledger")
        msg = f"module 'chatledger' has no attribute {name!r}"
        raise AttributeError(msg)
