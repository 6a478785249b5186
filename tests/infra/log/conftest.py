"""A nats-server for each module, and a recorder with a stream of its own for each test."""

from collections.abc import Iterator

import pytest
from tests.support.jetstream_world import Server, connected, new_recorder, running

from chatledger.jetstream import JetStreamApplicationRecorder, JetStreamClient


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[JetStreamClient]:
    with connected(server.endpoint) as client:
        yield client


@pytest.fixture
def recorder(client: JetStreamClient) -> Iterator[JetStreamApplicationRecorder]:
    recorder = new_recorder(client)
    yield recorder
    recorder.destroy()
