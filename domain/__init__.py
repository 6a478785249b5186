"""What a conversation is and how it may change: pure functions of values, without I/O, clock or randomness."""
