"""ChatKit: its store of threads, items and attachments on a ledger."""
