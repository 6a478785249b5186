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
from chatledger.domain.versioned.content import Piece
from chatledger.domain.versioned.events import FieldRef
from chatledger.domain.versioned.interchange import ImportedValue, ImportedVersion, ValueImportResult
from chatledger.domain.versioned.record import StoredWrite
from chatledger.infra.exchange.chat_groups import ChatImport, import_chats
from chatledger.infra.exchange.jsonl import ExportCounts, write_all, write_chats
from chatledger.infra.exchange.readers import FORMATS, detect_format, read_all, read_chats

__all__ = [
    "FORMATS",
    "ChatImport",
    "ExportCounts",
    "FieldRef",
    "ImportResult",
    "ImportedBranch",
    "ImportedChat",
    "ImportedCheckpoint",
    "ImportedMessage",
    "ImportedRegeneration",
    "ImportedValue",
    "ImportedVersion",
    "OnChange",
    "Piece",
    "Problem",
    "StoredWrite",
    "ValueImportResult",
    "detect_format",
    "import_chats",
    "read_all",
    "read_chats",
    "validate_chat",
    "write_all",
    "write_chats",
]
