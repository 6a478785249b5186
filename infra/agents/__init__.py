"""Threads of agents on a ledger."""
