"""
Decisions of your own on a conversation: what `MessageHistory.read` and `MessageHistory.commit` give to a function.

`MessageHistory` itself is a name of `chatledger`. See docs/how-to/write-an-adapter.md.
"""

from chatledger.domain.chat.commit import Commit
from chatledger.domain.chat.history import History, Standing, Told
from chatledger.domain.chat.state import ChatState

__all__ = ["ChatState", "Commit", "History", "Standing", "Told"]
