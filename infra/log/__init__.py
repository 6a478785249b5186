"""The log of a ledger: an event recorder of the eventsourcing library, with what a ledger needs besides."""

from .mapper import StructMapper
from .port import EventLog, LostRaceError

__all__ = ["EventLog", "LostRaceError", "StructMapper"]
