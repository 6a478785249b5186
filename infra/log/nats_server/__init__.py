"""The embedded NATS server: one per data directory, owned by one process, shared by the others."""

from .directory import DataDirectory, Durability, EndpointRecord
from .server import EmbeddedServer, EmbeddedSource

__all__ = ["DataDirectory", "Durability", "EmbeddedServer", "EmbeddedSource", "EndpointRecord"]
