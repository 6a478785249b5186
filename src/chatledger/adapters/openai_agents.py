"""Sessions of OpenAI's Agents SDK on a ledger. Needs `pip install 'chatledger[openai-agents]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("openai-agents", __name__):
    from chatledger.infra.entrypoints.adapters.openai_agents.session import LedgerSession

__all__ = ["LedgerSession"]
