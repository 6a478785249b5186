"""The contract of a ledger on every kind of log: all behave the same."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.contracts.store import StoreContract
from tests.contracts.store_world import World, play
from tests.support.jetstream_world import TOKEN, running

import chatledger


class OneOfAll(StoreContract):
    """What is compared between the implementations."""

    @pytest.mark.timeout(40)
    def test_history_is_that_of_every_other_log(self, world: World, name: str) -> None:
        """The same calls write the same events, whatever the log."""
        with chatledger.open("memory:") as memory:
            assert play(world.ledger, name) == play(memory, name)


@pytest.fixture(scope="module")
def memory_world() -> Iterator[World]:
    with contextlib.closing(World("memory:")) as world:
        yield world


@pytest.fixture(scope="module")
def embedded_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    location = str(tmp_path_factory.mktemp("embedded") / "data")
    with contextlib.closing(World(location, durability="fast")) as world:
        yield world


@pytest.fixture(scope="module")
def nats_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    base = tmp_path_factory.mktemp("nats")
    with running(base / "server") as server:
        location = f"nats://{TOKEN}@127.0.0.1:{server.port}/contract"
        with contextlib.closing(World(location, create=True, index=base / "index")) as world:
            yield world


@pytest.fixture(scope="module")
def sqlite_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("sqlite") / "ledger.db"
    with contextlib.closing(World(f"sqlite:///{path}")) as world:
        yield world


@pytest.fixture(scope="module")
def postgres_world(
    tmp_path_factory: pytest.TempPathFactory, new_postgres_database: Callable[[], str]
) -> Iterator[World]:
    index = tmp_path_factory.mktemp("postgres") / "index"
    with contextlib.closing(World(new_postgres_database(), index=index)) as world:
        yield world


class TestMemory(OneOfAll):
    @pytest.fixture
    def world(self, memory_world: World) -> World:
        return memory_world


class TestEmbedded(OneOfAll):
    @pytest.fixture
    def world(self, embedded_world: World) -> World:
        return embedded_world


class TestNats(OneOfAll):
    @pytest.fixture
    def world(self, nats_world: World) -> World:
        return nats_world


class TestSqlite(OneOfAll):
    @pytest.fixture
    def world(self, sqlite_world: World) -> World:
        return sqlite_world


class TestPostgres(OneOfAll):
    @pytest.fixture
    def world(self, postgres_world: World) -> World:
        return postgres_world
