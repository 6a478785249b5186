"""LlamaIndex: its chat stores on a ledger."""
