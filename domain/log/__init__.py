"""The log: encoding of events, hash chain, large data, tombstones. Pure."""
