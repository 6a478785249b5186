"""
The history of one conversation, for adapters of frameworks; and what `read` and `commit` of it give to a function of yours.

See docs/how-to/write-an-adapter.md.
"""

from chatledger.domain.chat.annotations import Standing
from chatledger.domain.chat.history import Commit, History
from chatledger.domain.chat.state import ChatState
from chatledger.infra.ledger.aio.history import AsyncMessageHistory
from chatledger.infra.ledger.history import MessageHistory

__all__ = ["AsyncMessageHistory", "ChatState", "Commit", "History", "MessageHistory", "Standing"]
