"""The index: answers derived from the log, kept in LMDB, disposable and rebuilt at any time."""
