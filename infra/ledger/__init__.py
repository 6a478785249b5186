"""The ledger, which users hold, and its port: what it asks of the store that it stands on."""
