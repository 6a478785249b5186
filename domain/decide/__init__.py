"""
Every decision as a pure function: (state, command) to the events that the command appends.

Nothing to do is an empty list. A command that cannot be carried out raises a `ChatledgerError`, and nothing is written.
"""
