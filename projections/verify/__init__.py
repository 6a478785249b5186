"""Proof that a log is sound, that an index says what its log says, and that both are what an anchor was signed for."""
