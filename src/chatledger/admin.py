"""Looking after a ledger: backups, diagnosis and repair, copies on servers, what is kept how long, and proof that its log is whole."""

from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, InclusionProof
from chatledger.domain.proof.bundle import BundledChat, BundleReport
from chatledger.domain.proof.erasure_report import ErasedStream, ErasureReport, Mention
from chatledger.domain.proof.excerpt import Excerpt, ExcerptEvent, ExcerptStanding
from chatledger.domain.proof.growth import GrowthProof
from chatledger.domain.proof.verification import Verification
from chatledger.domain.remotes import Remote
from chatledger.domain.retention import RetentionRule
from chatledger.infra.admin.backups import check_backup, restore
from chatledger.infra.admin.doctor.account import CorrectedEvent, KeptEvents, LostData, LostEvents, Repair
from chatledger.infra.admin.doctor.checks import Diagnosis, Finding
from chatledger.infra.admin.doctor.diagnosing import diagnose
from chatledger.infra.admin.doctor.removing import give_up
from chatledger.infra.admin.doctor.repairing import repair
from chatledger.infra.admin.replicas import ReplicaDamage, ReplicaSetAside, compare_replicas, set_replica_aside
from chatledger.infra.exchange.remote import RemoteLedger, open_remote
from chatledger.infra.ledger.bundles import AdoptedChat, check_bundle
from chatledger.infra.ledger.peers import PulledChat
from chatledger.infra.ledger.persons import check_receipt
from chatledger.infra.ledger.proof import check_excerpt
from chatledger.infra.ledger.sync import PullReport
from chatledger.infra.ledger.timestamps import TimeStamp, check_timestamp, stamped, timestamp_request
from chatledger.infra.log.nats_server.launcher import ServerBinary
from chatledger.infra.store.backup.manifest import Backup
from chatledger.infra.store.quarantine import QuarantinedStream

__all__ = [
    "AdoptedChat",
    "Anchor",
    "AnchorLeaf",
    "Backup",
    "BundleReport",
    "BundledChat",
    "CorrectedEvent",
    "Diagnosis",
    "ErasedStream",
    "ErasureReport",
    "Excerpt",
    "ExcerptEvent",
    "ExcerptStanding",
    "Finding",
    "GrowthProof",
    "InclusionProof",
    "KeptEvents",
    "LegalHold",
    "LostData",
    "LostEvents",
    "Mention",
    "PullReport",
    "PulledChat",
    "QuarantinedStream",
    "Remote",
    "RemoteLedger",
    "Repair",
    "ReplicaDamage",
    "ReplicaSetAside",
    "RetentionRule",
    "ServerBinary",
    "TimeStamp",
    "Verification",
    "check_backup",
    "check_bundle",
    "check_excerpt",
    "check_receipt",
    "check_timestamp",
    "compare_replicas",
    "diagnose",
    "give_up",
    "open_remote",
    "repair",
    "restore",
    "set_replica_aside",
    "stamped",
    "timestamp_request",
]
