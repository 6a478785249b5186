"""Full-text search: an inverted index of each chat, kept and read in the transactions of the rows."""
