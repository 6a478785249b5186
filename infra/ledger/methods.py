"""The methods of a ledger, on whichever store: the whole one, one user's, or one moment's."""

from .annotations import AnnotationMethods
from .backups import BackupMethods
from .branches import BranchMethods
from .chats import ChatMethods
from .checkpoints import CheckpointMethods
from .forks import ForkMethods
from .interchange import InterchangeMethods
from .log import LogMethods
from .messages import MessageMethods
from .projections import ProjectionMethods
from .proof import ProofMethods
from .regenerations import RegenerationMethods
from .runs import RunMethods
from .saves import SaveMethods
from .search import SearchMethods


class LedgerMethods(
    ChatMethods,
    MessageMethods,
    BranchMethods,
    CheckpointMethods,
    AnnotationMethods,
    RunMethods,
    RegenerationMethods,
    ForkMethods,
    SaveMethods,
    SearchMethods,
    InterchangeMethods,
    LogMethods,
    ProofMethods,
    ProjectionMethods,
    BackupMethods,
):
    """All methods of a ledger but those that look back."""
