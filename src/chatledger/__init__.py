"""State for conversations with AI agents: a DAG of immutable messages on an append-only log."""
