"""The outside world: the ledger, the log and its server, importers and the command line."""
