"""Readers of foreign conversation files, and our own lossless export."""

from chatledger.domain.chat.import_check import validate_chat
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    Problem,
)

from .jsonl import write_chat, write_chats, write_footer, write_header
from .readers import FORMATS, detect_format, read_chats

__all__ = [
    "FORMATS",
    "ImportedBranch",
    "ImportedChat",
    "ImportedCheckpoint",
    "ImportedMessage",
    "ImportedRegeneration",
    "Problem",
    "detect_format",
    "read_chats",
    "validate_chat",
    "write_chat",
    "write_chats",
    "write_footer",
    "write_header",
]
