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
from chatledger.infra.exchange.jsonl import write_chats
from chatledger.infra.exchange.readers import FORMATS, detect_format, read_chats

__all__ = [
    "FORMATS",
    "ImportResult",
    "ImportedBranch",
    "ImportedChat",
    "ImportedCheckpoint",
    "ImportedMessage",
    "ImportedRegeneration",
    "OnChange",
    "Problem",
    "detect_format",
    "read_chats",
    "validate_chat",
    "write_chats",
]
