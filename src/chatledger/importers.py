"""Reading conversations from elsewhere, and our own lossless export."""

from chatledger.domain.chat.import_check import validate_chat
from chatledger.domain.chat.import_versions import OnChange
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    ImportResult,
    Problem,
)
from chatledger.domain.versioned.exported_pieces import ImportedPiece
from chatledger.domain.versioned.interchange import ImportedStep, ImportedThread, ImportedWrite, ThreadImportResult
from chatledger.domain.versioned.numbered_interchange import (
    ImportedField,
    ImportedState,
    ImportedVersion,
    StateImportResult,
)
from chatledger.infra.exchange.chat_groups import ChatImport, import_chats
from chatledger.infra.exchange.jsonl import ExportCounts, write_all, write_chats
from chatledger.infra.exchange.readers import FORMATS, detect_format, read_all, read_chats

__all__ = [
    "FORMATS",
    "ChatImport",
    "ExportCounts",
    "ImportResult",
    "ImportedBranch",
    "ImportedChat",
    "ImportedCheckpoint",
    "ImportedField",
    "ImportedMessage",
    "ImportedPiece",
    "ImportedRegeneration",
    "ImportedState",
    "ImportedStep",
    "ImportedThread",
    "ImportedVersion",
    "ImportedWrite",
    "OnChange",
    "Problem",
    "StateImportResult",
    "ThreadImportResult",
    "detect_format",
    "import_chats",
    "read_all",
    "read_chats",
    "validate_chat",
    "write_all",
    "write_chats",
]
