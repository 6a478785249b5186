"""Live streams of a ledger: writing them, reading them, taking them over."""

from .methods import LiveMethods, sweep_live
from .reader import LiveReader
from .writer import LiveAnswer

__all__ = ["LiveAnswer", "LiveMethods", "LiveReader", "sweep_live"]
