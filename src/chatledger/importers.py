"""Reading conversations from elsewhere, and our own lossless export."""

from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    ImportResult,
)
from chatledger.infra.exchange.importers import FORMATS, Problem, detect_format, read_chats, validate_chat, write_chats

__all__ = [
    "FORMATS",
    "ImportResult",
    "ImportedBranch",
    "ImportedChat",
    "ImportedCheckpoint",
    "ImportedMessage",
    "ImportedRegeneration",
    "Problem",
    "detect_format",
    "read_chats",
    "validate_chat",
    "write_chats",
]
