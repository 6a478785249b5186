"""The same ledger for asyncio and trio."""
