"""The ledger: what users hold."""

from .ledger import Ledger

__all__ = ["Ledger"]
