"""Chats: their events, the fold over them, and every decision as a pure function from (state, command) to events."""
