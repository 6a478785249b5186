"""Threads of agents: checkpoints of their state, pending writes, and the content they share. Pure."""
