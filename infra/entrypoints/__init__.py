"""Entry points: the command line, LangGraph."""
