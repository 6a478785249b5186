"""Versioned values in the index: threads, states and items, with their versions, pending writes and content."""
