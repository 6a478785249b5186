"""
Stores of conversations for agent frameworks, on a ledger: `chatledger.adapters.<name>`, each with an extra of that name.

Importing one of them imports its framework, and no other.
"""
