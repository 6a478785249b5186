"""
NATS JetStream as a persistence module of the eventsourcing library: `PERSISTENCE_MODULE=chatledger.jetstream`.

The library looks through this namespace for the one factory class; no second one may be imported here.
"""

from chatledger.infra.jetstream.client import JetStreamClient
from chatledger.infra.jetstream.endpoint import Endpoint
from chatledger.infra.jetstream.errors import (
    DamagedLogError,
    OutcomeUnknownError,
    StorageFullError,
    StreamAbsentError,
)
from chatledger.infra.jetstream.factory import JetStreamFactory
from chatledger.infra.jetstream.recorders import (
    JetStreamAggregateRecorder,
    JetStreamApplicationRecorder,
    JetStreamProcessRecorder,
    JetStreamTrackingRecorder,
)
from chatledger.infra.jetstream.stream import StreamState
from chatledger.infra.jetstream.subscription import JetStreamSubscription

__all__ = [
    "DamagedLogError",
    "Endpoint",
    "JetStreamAggregateRecorder",
    "JetStreamApplicationRecorder",
    "JetStreamClient",
    "JetStreamFactory",
    "JetStreamProcessRecorder",
    "JetStreamSubscription",
    "JetStreamTrackingRecorder",
    "OutcomeUnknownError",
    "StorageFullError",
    "StreamAbsentError",
    "StreamState",
]
