"""Conversations in and out: readers of foreign files, and our own lossless export."""
