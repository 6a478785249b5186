"""Strands Agents: its session repository and session manager on a ledger."""
