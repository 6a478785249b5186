"""The context engine, written once over a port, for synchronous and asynchronous callers alike."""
