"""Sessions of Google's Agent Development Kit on a ledger. Needs `pip install 'chatledger[adk]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("adk", __name__):
    from chatledger.infra.entrypoints.adapters.adk.service import LedgerSessionService, chat_id

__all__ = ["LedgerSessionService", "chat_id"]
