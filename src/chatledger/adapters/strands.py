"""Sessions of Strands Agents on a ledger. Needs `pip install 'chatledger[strands]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("strands", __name__):
    from chatledger.infra.entrypoints.adapters.strands.sessions import (
        LedgerSessionManager,
        LedgerSessionRepository,
        chat_id,
    )

__all__ = ["LedgerSessionManager", "LedgerSessionRepository", "chat_id"]
