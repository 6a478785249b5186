"""NATS JetStream as a persistence module of the eventsourcing library. The public names are in `chatledger.jetstream`."""
