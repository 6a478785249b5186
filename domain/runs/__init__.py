"""Runs of agents in a chat: what triggered them, what they produced, and what has to be repeated after an edit."""
