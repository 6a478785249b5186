"""Readers of foreign conversation files, and our own lossless export."""

from .check import validate_chat
from .jsonl import write_chat, write_chats, write_footer, write_header
from .model import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    Problem,
)
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
