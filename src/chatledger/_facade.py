"""The names of `chatledger`: what an application uses, without `open`, so that `*` replaces no builtin."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.save import Save, SavePreview, SaveResult
from chatledger.domain.context.engine.reading import Head, Resolved
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.search.embedding import Embedding
from chatledger.domain.values import (
    ANY,
    Annotation,
    Branch,
    Chat,
    Checkpoint,
    Divergence,
    ErasureReceipt,
    Graph,
    GraphBranch,
    GraphCheckpoint,
    GraphNode,
    HitCounts,
    HitPlace,
    Message,
    NewMessage,
    Page,
    PageEntry,
    SearchHit,
    SearchHits,
    Swept,
    Versions,
)
from chatledger.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ChainIntegrityError,
    ChatledgerError,
    ConfigurationError,
    ConflictError,
    CorruptStateError,
    HeadConflictError,
    InvalidValueError,
    LedgerClosedError,
    LogUnavailableError,
    NotFoundError,
)
from chatledger.infra.ledger.drafts import assistant, assistant_text, message, user
from chatledger.infra.ledger.feed import AsyncFeed, Feed, FeedInfo
from chatledger.infra.ledger.ledger import Ledger
from chatledger.infra.ledger.merges import Merge
from chatledger.infra.ledger.view import LedgerView
from chatledger.infra.log.nats.endpoint import Login
from chatledger.infra.store.custom_projections import ProjectionInfo
from chatledger.infra.store.opening.encryption import Encryption
from chatledger.projections.custom.records import Projection
from chatledger.projections.custom.rows import ProjectionRows, ProjectionView

if TYPE_CHECKING:
    from chatledger.infra.ledger.aio.async_ledger import AsyncLedger, AsyncLedgerView
    from chatledger.infra.ledger.engine import AsyncContextEngine, ContextEngine
    from chatledger.infra.ledger.history import AsyncMessageHistory, MessageHistory
    from chatledger.infra.ledger.open import open_async

__all__ = [
    "ANY",
    "AccessDeniedError",
    "AlreadyExistsError",
    "Annotation",
    "AsyncContextEngine",
    "AsyncFeed",
    "AsyncLedger",
    "AsyncLedgerView",
    "AsyncMessageHistory",
    "Branch",
    "ChainIntegrityError",
    "Chat",
    "ChatledgerError",
    "Checkpoint",
    "ConfigurationError",
    "ConflictError",
    "ContextEngine",
    "CorruptStateError",
    "Divergence",
    "Embedding",
    "Encryption",
    "ErasureReceipt",
    "Feed",
    "FeedInfo",
    "Fragment",
    "Graph",
    "GraphBranch",
    "GraphCheckpoint",
    "GraphNode",
    "Head",
    "HeadConflictError",
    "HitCounts",
    "HitPlace",
    "InvalidValueError",
    "Ledger",
    "LedgerClosedError",
    "LedgerView",
    "LogUnavailableError",
    "Login",
    "Merge",
    "Message",
    "MessageHistory",
    "NewMessage",
    "NotFoundError",
    "Page",
    "PageEntry",
    "Projection",
    "ProjectionInfo",
    "ProjectionRows",
    "ProjectionView",
    "Recorded",
    "Resolved",
    "Save",
    "SavePreview",
    "SaveResult",
    "SearchHit",
    "SearchHits",
    "Swept",
    "Versions",
    "assistant",
    "assistant_text",
    "message",
    "open_async",
    "user",
]

_LATER: Final = {
    "AsyncContextEngine": "engine",
    "AsyncLedger": "aio.async_ledger",
    "AsyncLedgerView": "aio.async_ledger",
    "AsyncMessageHistory": "history",
    "ContextEngine": "engine",
    "MessageHistory": "history",
    "open_async": "open",
}
"""Names whose modules import asyncio and anyio, and where they are: a program that opens a ledger and blocks does without."""


def __getattr__(name: str) -> object:
    """Import what is used later than the rest."""
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"chatledger.infra.ledger.{_LATER[name]}"), name)
