"""Transcripts of the Claude Agent SDK on a ledger. Needs `pip install 'chatledger[claude]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("claude", __name__):
    from chatledger.infra.entrypoints.adapters.claude.store import LedgerSessionStore, chat_id


__all__ = ["LedgerSessionStore", "chat_id"]
