"""Conversations in and out: importers of foreign files, and our own lossless export."""
