"""The domain: what a conversation is and how it may change, as pure functions of values, without I/O, clock or randomness."""
