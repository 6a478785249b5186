"""The ledger for asyncio and trio."""
