"""Backups of a log: taking them while it is in use, reading them back, and making a log from one."""
