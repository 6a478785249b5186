"""`LedgerSession`, a session of OpenAI's Agents SDK: its items are messages of a chat, and its branches are the chat's."""
