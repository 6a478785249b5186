"""LangGraph: a checkpoint saver on a ledger. Imported only by those who use it."""
