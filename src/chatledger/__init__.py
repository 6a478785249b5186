"""
State for conversations with AI agents: a DAG of immutable messages on an append-only log.

    import chatledger
    from chatledger import user

    with chatledger.open("./chatledger-data") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("Plan a weekend in Riga")])
"""

import typing as _t

from chatledger.domain.anchors import Anchor, AnchorLeaf, InclusionProof
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
from chatledger.domain.events import Recorded
from chatledger.domain.runs.stream import RunData, RunEnd, RunMetadata
from chatledger.domain.runs.values import MessageRun, PlannedRun, Regeneration, RegenerationPlan, RegenerationStep
from chatledger.domain.saving import Save, SavePreview, SaveResult
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
from chatledger.domain.verification import Verification
from chatledger.infra.async_ledger import AsyncLedger
from chatledger.infra.async_view import AsyncLedgerView
from chatledger.infra.backup.checking import check_backup
from chatledger.infra.backup.restoring import restore
from chatledger.infra.backup.values import Backup
from chatledger.infra.custom_projections import ProjectionInfo
from chatledger.infra.doctor.account import CorrectedEvent, KeptEvents, LostData, LostEvents, Repair
from chatledger.infra.doctor.diagnosing import diagnose
from chatledger.infra.doctor.findings import Diagnosis, Finding
from chatledger.infra.doctor.giving_up import give_up
from chatledger.infra.doctor.repairing import repair
from chatledger.infra.doctor.replica import ReplicaSetAside, set_replica_aside
from chatledger.infra.encryption import Encryption
from chatledger.infra.engine import AsyncContextEngine, ContextEngine
from chatledger.infra.feed import AsyncFeed, Feed, FeedInfo
from chatledger.infra.ledger.ledger import Ledger
from chatledger.infra.ledger.view import LedgerView
from chatledger.infra.login import Login
from chatledger.infra.messages import assistant, assistant_text, message, user
from chatledger.infra.opening import open_async_ledger as open_async
from chatledger.infra.opening import open_ledger as open  # noqa: A004 - `chatledger.open` reads as `gzip.open` does
from chatledger.infra.quarantine import QuarantinedStream
from chatledger.infra.replicas import ReplicaDamage, compare_replicas
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
