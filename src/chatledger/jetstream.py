"""
NATS JetStream as a persistence module of the eventsourcing library: `PERSISTENCE_MODULE=chatledger.jetstream`.

The library looks through this namespace for the one factory class; no second one may be imported here.
"""

from chatledger.infra.log.nats.client import JetStreamClient
from chatledger.infra.log.nats.endpoint import Endpoint
from chatledger.infra.log.nats.errors import DamagedLogError, OutcomeUnknownError, StorageFullError, StreamAbsentError
from chatledger.infra.log.nats.factory import JetStreamFactory
from chatledger.infra.log.nats.recorders import (
    JetStreamAggregateRecorder,
    JetStreamApplicationRecorder,
    JetStreamProcessRecorder,
    JetStreamTrackingRecorder,
)
from chatledger.infra.log.nats.stream import StreamState
from chatledger.infra.log.nats.subscription import JetStreamSubscription

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
