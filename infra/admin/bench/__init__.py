"""Speed on a user's own machine, next to SQLite."""

from .generated import generated_chats
from .running import Comparison, compare_with_sqlite

__all__ = ["Comparison", "compare_with_sqlite", "generated_chats"]
