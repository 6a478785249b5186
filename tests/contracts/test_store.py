"""The contract of a ledger on every kind of log: all behave the same."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from tests.contracts.store import StoreContract
from tests.contracts.store_world import World, play
from tests.support.alchemy_world import ALCHEMY_KINDS, new_alchemy_location
from tests.support.jetstream_world import TOKEN, running

import chatledger


@pytest.fixture(
    scope="module",
    params=[
        *("memory", "embedded", "nats", "sqlite", "postgres"),
        # "postgres" is the log of these; what is SQLite's own, or MariaDB's, is in `make guard`.
        *(pytest.param(kind, marks=pytest.mark.guard) for kind in ALCHEMY_KINDS),
    ],
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The ledgers of one kind of log."""
    base = tmp_path_factory.mktemp(request.param)
    options: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        match request.param:
            case "embedded":
                location, options = str(base / "data"), {"durability": "fast"}
            case "nats":
                server = stack.enter_context(running(base / "server"))
                location = f"nats://{TOKEN}@127.0.0.1:{server.port}/contract"
                options = {"create": True, "index": base / "index"}
            case kind if kind in ALCHEMY_KINDS:
                location = new_alchemy_location(request, kind, base)()
                options = {"index": base / "index"}
            case "sqlite":
                location = f"sqlite:///{base / 'ledger.db'}"
            case "postgres":
                location, options = request.getfixturevalue("new_postgres_database")(), {"index": base / "index"}
            case _:
                location = "memory:"
        yield stack.enter_context(contextlib.closing(World(location, **options)))


class TestEveryLog(StoreContract):
    @pytest.mark.timeout(40)
    def test_history_is_that_of_every_other_log(self, world: World, name: str) -> None:
        """The same calls write the same events, whatever the log."""
        with chatledger.open("memory:") as memory:
            assert play(world.ledger, name) == play(memory, name)
