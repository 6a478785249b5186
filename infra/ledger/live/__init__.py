"""Live streams of a ledger: writing them, reading them, taking them over."""

from .methods import LiveMethods, LiveReader, drop_live_of_sender, sweep_live
from .writer import LiveAnswer

__all__ = ["LiveAnswer", "LiveMethods", "LiveReader", "drop_live_of_sender", "sweep_live"]
