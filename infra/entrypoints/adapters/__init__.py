"""Adapters: the stores of conversations that agent frameworks ask for, on a ledger. One module and one extra each."""
