"""Pydantic AI: its conversation store on a ledger."""
