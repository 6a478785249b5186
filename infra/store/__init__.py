"""One log and one index, kept together: decide, commit, follow, erase, open."""
