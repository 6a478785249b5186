"""Transcripts of coding agents: where each agent keeps them, what their lines say, and files that an agent goes on from."""
