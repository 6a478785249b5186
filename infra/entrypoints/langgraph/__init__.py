"""LangGraph: a checkpoint saver on a ledger. Imported only where it is used."""
