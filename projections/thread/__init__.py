"""Threads of agents in the index: their checkpoints, pending writes, and the content that they share."""
