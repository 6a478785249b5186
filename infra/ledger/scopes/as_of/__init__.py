"""Reading chats as they stood at an earlier moment."""

from .moment import Moment, moment_at
from .snapshot import UnfoldedError
from .store import MomentStore, PastEvents

__all__ = ["Moment", "MomentStore", "PastEvents", "UnfoldedError", "moment_at"]
