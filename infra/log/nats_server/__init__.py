"""The embedded NATS server: one per data directory, owned by one process, shared by the others."""
