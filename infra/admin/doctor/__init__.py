"""Saying what is wrong with a ledger, also one that does not open, and repairing a damaged log."""
