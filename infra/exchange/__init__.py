"""Conversations in and out: formats of messages, importers of foreign files, exports."""
