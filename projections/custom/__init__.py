"""Projections of users: their rows lie in the index, and follow the log with the same guarantees."""
