"""Restricted stores: one user's, and that of an earlier moment."""
