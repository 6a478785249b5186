"""`LedgerSessionStore`, a session store of the Claude Agent SDK: transcripts are chats, and the tree of their entries is branches."""
