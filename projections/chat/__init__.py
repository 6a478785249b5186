"""Chats in the index: chains of messages, branches, runs, and the lists over all chats."""
