"""What stands on a log: the encoding of events, the hash chain, large data, tombstones. Pure."""
