"""Stored states of graphs in the index: their versions, the content these share, and the lists over all states."""
