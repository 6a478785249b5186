"""The context engine on a ledger."""

from .. import langchain as _langchain  # noqa: F401  # pyright: ignore[reportUnusedImport] - makes objects of LangChain of its form
from .context_engine import AsyncContextEngine, ContextEngine

__all__ = ["AsyncContextEngine", "ContextEngine"]
