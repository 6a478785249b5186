"""LangGraph's API at the root: assistants, threads, their states and runs, for LangGraph's own clients."""
