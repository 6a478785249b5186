"""Looking after a ledger: backups, diagnosis and repair, copies on servers, and proof that its log is whole."""

from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, InclusionProof
from chatledger.domain.proof.message_proof import GrowthProof, MessageProof
from chatledger.domain.proof.verification import Verification
from chatledger.infra.admin.backups import check_backup, restore
from chatledger.infra.admin.doctor.account import CorrectedEvent, KeptEvents, LostData, LostEvents, Repair
from chatledger.infra.admin.doctor.checks import Diagnosis, Finding
from chatledger.infra.admin.doctor.diagnosing import diagnose
from chatledger.infra.admin.doctor.removing import give_up
from chatledger.infra.admin.doctor.repairing import repair
from chatledger.infra.admin.replicas import ReplicaDamage, ReplicaSetAside, compare_replicas, set_replica_aside
from chatledger.infra.ledger.proof import check_message_proof
from chatledger.infra.log.nats_server.launcher import ServerBinary
from chatledger.infra.store.backup.manifest import Backup
from chatledger.infra.store.quarantine import QuarantinedStream

__all__ = [
    "Anchor",
    "AnchorLeaf",
    "Backup",
    "CorrectedEvent",
    "Diagnosis",
    "Finding",
    "GrowthProof",
    "InclusionProof",
    "KeptEvents",
    "LostData",
    "LostEvents",
    "MessageProof",
    "QuarantinedStream",
    "Repair",
    "ReplicaDamage",
    "ReplicaSetAside",
    "ServerBinary",
    "Verification",
    "check_backup",
    "check_message_proof",
    "compare_replicas",
    "diagnose",
    "give_up",
    "repair",
    "restore",
    "set_replica_aside",
]
