"""Contract checks for those who write a log, a projection or a saver, and what they are made with."""
