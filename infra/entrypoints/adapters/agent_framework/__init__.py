"""Microsoft's Agent Framework: its history provider on a ledger."""
