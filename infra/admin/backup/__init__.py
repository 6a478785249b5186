"""Backups read back, and a log made from one. Taking them is in `infra/store/backup`."""
