"""The trail of a stream: where on the log its events stand. The hash chain says in which order; it does not say where."""

from hashlib import sha256
from typing import Final

NO_TRAIL: Final = b""
"""The trail before the first event, and before a tombstone: what stood there may be erased."""


def extended(trail: bytes, position: int, event_hash: bytes) -> bytes:
    """The trail with one more event: SHA-256 over the trail before, the position (8 bytes) and the event's hash."""
    return sha256(b"%s%s%s" % (trail, position.to_bytes(8, "big"), event_hash)).digest()
