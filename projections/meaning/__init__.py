"""Search by meaning: vectors of messages beside the index, and scans over any vectors."""
