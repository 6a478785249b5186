"""
State for conversations with AI agents: a DAG of immutable messages on an append-only log.

    import chatledger
    from chatledger import user

    with chatledger.open("./chatledger-data") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("Plan a weekend in Riga")])
"""

import typing as _t

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.runs import (
    MessageRun,
    PlannedRun,
    Regeneration,
    RegenerationPlan,
    RegenerationStep,
    RunData,
    RunEnd,
    RunMetadata,
)
from chatledger.domain.chat.save import Save, SavePreview, SaveResult
from chatledger.domain.context.engine.reading import Head, Resolved
from chatledger.domain.context.fragments import Fragment
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
    CheckpointConflictError,
    CheckpointExistsError,
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
    NamespaceError,
    NotFoundError,
    OwnerMismatchError,
    ParentNotFoundError,
    PayloadTooLargeError,
    PlanOutdatedError,
    ProjectionError,
    QuarantinedError,
    RegenerationNotFoundError,
    ResolverError,
    ResourceError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    RuntimeMismatchError,
    SelfParentError,
    StateConflictError,
    UnknownLazyTypeError,
    UnsupportedFormatError,
    UpdateConflictError,
    WrongChatError,
)
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, InclusionProof
from chatledger.domain.proof.verification import Verification
from chatledger.domain.values import (
    ANY,
    Annotation,
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
from chatledger.infra.admin.backup.checking import check_backup
from chatledger.infra.admin.backup.restoring import restore
from chatledger.infra.admin.doctor.account import CorrectedEvent, KeptEvents, LostData, LostEvents, Repair
from chatledger.infra.admin.doctor.diagnosing import diagnose
from chatledger.infra.admin.doctor.findings import Diagnosis, Finding
from chatledger.infra.admin.doctor.removing import give_up
from chatledger.infra.admin.doctor.repairing import repair
from chatledger.infra.admin.replicas import ReplicaDamage, ReplicaSetAside, compare_replicas, set_replica_aside
from chatledger.infra.ledger.aio.async_ledger import AsyncLedger, AsyncLedgerView
from chatledger.infra.ledger.drafts import assistant, assistant_text, message, user
from chatledger.infra.ledger.engine import AsyncContextEngine, ContextEngine
from chatledger.infra.ledger.feed import AsyncFeed, Feed, FeedInfo
from chatledger.infra.ledger.ledger import Ledger
from chatledger.infra.ledger.open import open_async_ledger as open_async
from chatledger.infra.ledger.open import open_ledger as open  # noqa: A004 - `chatledger.open` reads as `gzip.open` does
from chatledger.infra.ledger.view import LedgerView
from chatledger.infra.log.nats.login import Login
from chatledger.infra.store.backup.manifest import Backup
from chatledger.infra.store.custom_projections import ProjectionInfo
from chatledger.infra.store.opening.encryption import Encryption
from chatledger.infra.store.quarantine import QuarantinedStream
from chatledger.projections.custom.projection import Projection
from chatledger.projections.custom.rows import ProjectionRows, ProjectionView

__all__ = [
    "ANY",
    "AccessDeniedError",
    "AlreadyExistsError",
    "AmbiguousEditError",
    "Anchor",
    "AnchorLeaf",
    "Annotation",
    "AsyncContextEngine",
    "AsyncFeed",
    "AsyncLedger",
    "AsyncLedgerView",
    "Backup",
    "Branch",
    "BranchExistsError",
    "BranchNotFoundError",
    "ChainIntegrityError",
    "Chat",
    "ChatExistsError",
    "ChatNotFoundError",
    "ChatledgerError",
    "Checkpoint",
    "CheckpointConflictError",
    "CheckpointExistsError",
    "CheckpointNotFoundError",
    "ConfigurationError",
    "ConflictError",
    "ContextEngine",
    "CorrectedEvent",
    "CorruptStateError",
    "Diagnosis",
    "Divergence",
    "EmptyChatError",
    "Encryption",
    "Feed",
    "FeedInfo",
    "Finding",
    "Fragment",
    "FragmentConversionError",
    "Graph",
    "GraphBranch",
    "GraphCheckpoint",
    "GraphNode",
    "Head",
    "HeadConflictError",
    "InclusionProof",
    "InvalidValueError",
    "KeptEvents",
    "Ledger",
    "LedgerClosedError",
    "LedgerLockedError",
    "LedgerView",
    "LogFullError",
    "LogRefusedError",
    "LogRegressedError",
    "LogUnavailableError",
    "Login",
    "LostData",
    "LostEvents",
    "Message",
    "MessageConflictError",
    "MessageNotFoundError",
    "MessageRun",
    "MissingCodecError",
    "ModelNotFoundError",
    "NamespaceError",
    "NewMessage",
    "NotFoundError",
    "OwnerMismatchError",
    "ParentNotFoundError",
    "PayloadTooLargeError",
    "PlanOutdatedError",
    "PlannedRun",
    "Projection",
    "ProjectionError",
    "ProjectionInfo",
    "ProjectionRows",
    "ProjectionView",
    "QuarantinedError",
    "QuarantinedStream",
    "Recorded",
    "Regeneration",
    "RegenerationNotFoundError",
    "RegenerationPlan",
    "RegenerationStep",
    "Repair",
    "ReplicaDamage",
    "ReplicaSetAside",
    "Resolved",
    "ResolverError",
    "ResourceError",
    "RunConflictError",
    "RunData",
    "RunEnd",
    "RunMetadata",
    "RunNotFoundError",
    "RunStatusError",
    "RuntimeMismatchError",
    "Save",
    "SavePreview",
    "SaveResult",
    "SearchHit",
    "SearchHits",
    "SelfParentError",
    "StateConflictError",
    "UnknownLazyTypeError",
    "UnsupportedFormatError",
    "UpdateConflictError",
    "Verification",
    "WrongChatError",
    "assistant",
    "assistant_text",
    "check_backup",
    "compare_replicas",
    "diagnose",
    "give_up",
    "message",
    "open",
    "open_async",
    "repair",
    "restore",
    "set_replica_aside",
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
