"""Time travel: reading chats as of an earlier point of the log."""

from .snapshot import AsOfPoint, find_point
from .store import AsOfEvents, AsOfStore

__all__ = ["AsOfEvents", "AsOfPoint", "AsOfStore", "find_point"]
