"""The log in the index: what stands at each position, applying its events, and what is not served because of what it lost."""
