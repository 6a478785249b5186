"""Backups of a log: taking them while it is in use."""
