"""The context engine on a ledger."""

from .context_engine import AsyncContextEngine, ContextEngine

__all__ = ["AsyncContextEngine", "ContextEngine"]
