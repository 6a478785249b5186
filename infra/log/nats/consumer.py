"""Consumers: how a server is asked for the messages above a position, and what it sends."""

from collections.abc import Callable

import msgspec

from .errors import ConnectionLostError
from .reading import LogMessage
from .stream import ClusterInfo
from .transport import Delivery, description_of, parse_headers, status_of

EXPIRES_S = 60.0
HEARTBEAT_S = 2.0
# Silence for this long means that the consumer is gone, with its node or with an election.
SILENCE_S = 3 * HEARTBEAT_S
INACTIVE_S = 60
# What may be under way at once, and as much may wait to be taken; the server drops a client that has 64 MB waiting for it.
WANTED_BYTES = 16 * 1024 * 1024


class ConsumerInfo(msgspec.Struct):
    """The reply to `CONSUMER.CREATE`."""

    name: str
    cluster: ClusterInfo | None = None


def consumer_request(stream: str, *, after: int, inactive_s: int = INACTIVE_S, subject: str | None = None) -> bytes:
    """Return the request for a consumer of everything above `after`, or of one subject, which one server keeps in memory."""
    config = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(after + 1, 1),
        # The reader's own position says where to go on: acknowledgements that a server had taken were gone after a kill -9.
        "ack_policy": "none",
        # It dies with its server, and is made anew at the next position.
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": inactive_s * 10**9,
        **({} if subject is None else {"filter_subject": subject}),
    }
    return msgspec.json.encode({"stream_name": stream, "config": config})


def next_request(count: int) -> bytes:
    """Return the request for that many more messages of a consumer."""
    # Without heartbeats, "nothing new" and "the consumer died with its server" look the same.
    return msgspec.json.encode(
        {"batch": count, "expires": int(EXPIRES_S * 10**9), "idle_heartbeat": int(HEARTBEAT_S * 10**9)}
    )


def position_of(delivery: Delivery) -> int:
    """The stream position of a consumer's message, from its acknowledgement subject (of both forms)."""
    parts = delivery.reply.split(b".")
    return int(parts[5] if len(parts) == 9 else parts[7])


class Pulled:
    """
    The messages above a position, handed over to `take`, each as it arrives.

    Attributes:
        outstanding: How many of those that were asked for may still come.
        lost: Why no more come; None as long as they may.
    """

    def __init__(self, take: Callable[[LogMessage], None]) -> None:
        self._take = take
        self.lost: str | None = None
        self.outstanding: int = 0

    def deliver(self, delivery: Delivery) -> None:
        """Take what the server has sent: a message, or a status."""
        status = None if delivery.payload else status_of(delivery.headers)
        if status is None:
            self.outstanding = max(0, self.outstanding - 1)
            headers = parse_headers(delivery.headers)
            self._take(LogMessage(position_of(delivery), delivery.subject.decode(), headers, delivery.payload))
        # The request has expired; so many messages of it did not come.
        elif status == "408":
            pending = parse_headers(delivery.headers).get("Nats-Pending-Messages", self.outstanding)
            self.outstanding = max(0, self.outstanding - int(pending))
        elif status != "100":
            self.lost = f"{status} {description_of(delivery.headers)}"

    def refuse_lost(self) -> None:
        """Raise `ConnectionLostError` where no more come."""
        if self.lost is not None:
            raise ConnectionLostError(self.lost)
