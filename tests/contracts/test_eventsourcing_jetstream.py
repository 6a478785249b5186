"""The eventsourcing library's own cases for persistence modules, unmodified, on a real nats-server."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, TypeVar
from unittest import TestCase
from uuid import uuid4

import pytest
from eventsourcing.persistence import Tracking
from eventsourcing.utils import Environment, get_topic
from tests.support.jetstream_world import TOKEN, connected, running

import chatledger.jetstream
from chatledger.jetstream import (
    JetStreamAggregateRecorder,
    JetStreamApplicationRecorder,
    JetStreamClient,
    JetStreamFactory,
    JetStreamProcessRecorder,
    JetStreamTrackingRecorder,
)

with warnings.catch_warnings():
    # Importing these calls `warnings.resetwarnings()`.
    from eventsourcing.tests import application as application_cases
    from eventsourcing.tests import persistence as persistence_cases
    from eventsourcing.tests import projection as projection_cases

pytestmark = pytest.mark.guard


Recorder = TypeVar("Recorder", bound=JetStreamAggregateRecorder | JetStreamTrackingRecorder)


class World:
    """Values that the fixture hands to the cases, which are classes of `unittest` and cannot ask for fixtures."""

    url = ""
    client: JetStreamClient


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    base: Path = tmp_path_factory.mktemp("nats")
    with running(base) as server, connected(server.endpoint) as client:
        World.url, World.client = server.url, client
        yield


def settings() -> dict[str, str]:
    return {
        "PERSISTENCE_MODULE": chatledger.jetstream.__name__,
        "JETSTREAM_URL": World.url,
        "JETSTREAM_TOKEN": TOKEN,
        "CREATE_STREAM": "yes",
    }


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings().items():
        monkeypatch.setenv(name, value)


def new_stream() -> str:
    return "T" + uuid4().hex


def made(kind: type[Recorder], case: TestCase, suffix: str = "") -> Recorder:
    """A recorder on a stream of its own, which is removed after the case."""
    recorder = kind(World.client, new_stream() + suffix, create=True)
    case.addCleanup(recorder.destroy)
    return recorder


class TestAggregateRecorder(persistence_cases.AggregateRecorderTestCase):
    def create_recorder(self) -> JetStreamAggregateRecorder:
        return made(JetStreamAggregateRecorder, self)


class TestSnapshots(TestAggregateRecorder):
    def create_recorder(self) -> JetStreamAggregateRecorder:
        return made(JetStreamAggregateRecorder, self, "_snapshots")


class TestApplicationRecorder(persistence_cases.ApplicationRecorderTestCase[JetStreamApplicationRecorder]):
    def create_recorder(self) -> JetStreamApplicationRecorder:
        return made(JetStreamApplicationRecorder, self)

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestTrackingRecorder(persistence_cases.TrackingRecorderTestCase):
    def create_recorder(self) -> JetStreamTrackingRecorder:
        return made(JetStreamTrackingRecorder, self)


class TestProcessRecorder(persistence_cases.ProcessRecorderTestCase):
    def create_recorder(self) -> JetStreamProcessRecorder:
        return made(JetStreamProcessRecorder, self)


class TestNonInterleaving(persistence_cases.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> JetStreamApplicationRecorder:
        return made(JetStreamApplicationRecorder, self)


class OwnTrackingRecorder(JetStreamTrackingRecorder):
    pass


class TestFactory(persistence_cases.InfrastructureFactoryTestCase[JetStreamFactory]):
    def setUp(self) -> None:
        self.env = Environment("TestCase", env=settings())
        super().setUp()

    def expected_factory_class(self) -> type[JetStreamFactory]:
        return JetStreamFactory

    def expected_aggregate_recorder_class(self) -> type[JetStreamAggregateRecorder]:
        return JetStreamAggregateRecorder

    def expected_application_recorder_class(self) -> type[JetStreamApplicationRecorder]:
        return JetStreamApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[JetStreamTrackingRecorder]:
        return JetStreamTrackingRecorder

    def tracking_recorder_subclass(self) -> type[OwnTrackingRecorder]:
        return OwnTrackingRecorder

    def expected_process_recorder_class(self) -> type[JetStreamProcessRecorder]:
        return JetStreamProcessRecorder


@pytest.mark.usefixtures("environment")
class TestExampleApplication(application_cases.ExampleApplicationTestCase):
    expected_factory_topic = get_topic(JetStreamFactory)


# `test_application_log` looks for a deprecation warning, which the project's filters turn into an error.
@pytest.mark.filterwarnings("always::DeprecationWarning")
@pytest.mark.usefixtures("environment")
class TestApplication(application_cases.ApplicationTestCase):
    def setUp(self) -> None:
        super().setUp()
        # The case expects the first notification to be number 1.
        os.environ["APPLICATION_JETSTREAM_STREAM"] = new_stream()
        self.addCleanup(os.environ.pop, "APPLICATION_JETSTREAM_STREAM")


class TestEventSourcedProjection(projection_cases.EventSourcedProjectionTestCase):
    env: ClassVar[dict[str, str]] = {}

    def setUp(self) -> None:
        super().setUp()
        self.env.update(settings())
        for name in ("APPLICATION", "COUNTERS"):
            self.env[f"{name}_JETSTREAM_STREAM"] = new_stream()


class CountingView(JetStreamTrackingRecorder, projection_cases.EventCountersView):
    """Counts in memory what the log tracks; who sees a position tracked sees its event counted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counting = Lock()
        self._created = self._subsequent = 0

    def max_tracking_id(self, application_name: str) -> int | None:
        with self._counting:
            return super().max_tracking_id(application_name)

    def get_created_event_counter(self) -> int:
        return self._created

    def get_subsequent_event_counter(self) -> int:
        return self._subsequent

    def incr_created_event_counter(self, tracking: Tracking) -> None:
        with self._counting:
            self.insert_tracking(tracking)
            self._created += 1

    def incr_subsequent_event_counter(self, tracking: Tracking) -> None:
        with self._counting:
            self.insert_tracking(tracking)
            self._subsequent += 1


class TestEventCountersView(projection_cases.EventCountersViewTestCase):
    def construct_event_counters_view(self) -> CountingView:
        return made(CountingView, self)


class TestEventCountersProjection(projection_cases.AggregateEventCountersProjectionTestCase):
    view_class = CountingView
    env: ClassVar[dict[str, str]] = {}

    def setUp(self) -> None:
        super().setUp()
        self.env.update(settings())
        for name in ("APPLICATION", "EVENTCOUNTERS"):
            self.env[f"{name}_JETSTREAM_STREAM"] = new_stream()
