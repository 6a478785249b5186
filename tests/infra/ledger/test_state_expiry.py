"""States of graphs that expired: every sweep erases them, whoever does it, and pays for those only."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.http_world import client_of
from tests.support.operation_counting import counting
from tests.support.soak import examples

import chatledger
from chatledger import Ledger
from chatledger.graph_state import StateStore, state_id
from chatledger.infra.entrypoints.cli.app import cli
from chatledger.items import ItemStore
from chatledger.server import create_app

SECRET = "the password is swordfish"


def by_python(location: str) -> None:
    with chatledger.open(location) as ledger:
        assert ledger.sweep() == chatledger.Swept(chats=[], versioned=2)


def by_command(location: str) -> None:
    assert CliRunner().invoke(cli, ["sweep", "--location", location]).exit_code == 0


def by_http(location: str) -> None:
    ledger = chatledger.open_async(location)
    with client_of(create_app(ledger)) as client:
        assert client.post("/sweep").json() == {"chats": [], "versioned": 2, "messages": 0, "versions": 0}
    ledger.blocking().close()


def in_background(location: str) -> None:
    with chatledger.open(location, sweep_every_s=0.01) as ledger:
        while [recorded.type for recorded in ledger.history()].count("versions_deleted") < 2:
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("sweep", "is_sql"),
    [(by_python, False), (by_python, True), (by_command, False), (by_http, True), (in_background, True)],
)
def test_each_sweep_erases_what_expired(tmp_path: Path, sweep: Callable[[str], None], *, is_sql: bool) -> None:
    """Nothing of it is left in a file, neither of the log nor of the index; a tombstone says by whom."""
    location = f"sqlite:///{tmp_path}/log.db" if is_sql else str(tmp_path / "data")

    def files_with(text: bytes) -> list[str]:
        return [path.name for path in tmp_path.rglob("*") if path.is_file() and text in path.read_bytes()]

    with chatledger.open(location, durability="fast") as ledger:
        ledger.create_chat("trip", "ada")
        StateStore(ledger, ttl_seconds=0.001).put(state_id("ada", "trip"), {"note": SECRET})
        ItemStore(ledger).put(("ada",), "food", {"note": SECRET}, ttl_seconds=0.001)
        StateStore(ledger).put(state_id("ada", "stays"), {"note": "kept"})
    before = files_with(b"swordfish")
    sweep(location)
    assert [] == files_with(b"swordfish") != before
    with chatledger.open(location) as ledger:
        assert [info.conversation_id for info in StateStore(ledger).list()] == ["stays"]
        deletions = [recorded for recorded in ledger.history() if recorded.type == "versions_deleted"]
        assert ["anonymous" if sweep is by_http else "chatledger:sweeper"] * 2 == [
            recorded.actor for recorded in deletions
        ]
        assert ledger.get_chat("trip") is not None
        ledger.verify()


def test_a_sweep_costs_what_expired(ledger: Ledger) -> None:
    """States without an end, and those that have time left, are not looked at."""
    costs: list[int] = []
    for number in range(200):
        StateStore(ledger).put(state_id("ada", f"endless {number}"), {})
        StateStore(ledger, ttl_seconds=3600).put(state_id("ada", f"later {number}"), {})
        if number in {0, 199}:
            with counting() as counts:
                assert ledger.sweep().chats == []
            costs.append(counts.total())
    assert costs[0] == costs[1]


def test_the_limit_is_for_chats_and_states(ledger: Ledger) -> None:
    ledger.create_chat("a", "ada", expires_at=1)
    states = StateStore(ledger, ttl_seconds=0.001)
    for number in range(3):
        states.put(state_id("ada", f"c{number}"), {})
    time.sleep(0.01)
    assert ledger.sweep(limit=0).chats == []
    assert ledger.sweep(limit=2) == chatledger.Swept(chats=["a"], versioned=1)
    assert states.cleanup() == 2


def test_a_users_sweep_spares_others(ledger: Ledger) -> None:
    for user_id in ("ada", "bob"):
        StateStore(ledger, ttl_seconds=0.001).put(state_id(user_id, "trip"), {})
    time.sleep(0.01)
    assert ledger.for_user("bob").sweep() == chatledger.Swept(chats=[], versioned=1)
    assert StateStore(ledger).cleanup() == 1


ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 4), st.sampled_from([None, 1, 5])),
    st.tuples(st.sampled_from(["sweep", "rebuild", "wait"]), st.just(0), st.just(None)),
)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(ACTIONS, max_size=25))
def test_a_sweep_erases_exactly_what_expired(actions: list[tuple[str, int, int | None]]) -> None:
    """Whatever happened to the states before; time passes by `wait` and in what `sweep` is told."""
    with chatledger.open("memory:") as ledger:
        ends: dict[str, float] = {}
        offset = 0
        for action, number, ttl_s in actions:
            if action == "put":
                name = state_id("ada", str(number))
                StateStore(ledger, ttl_seconds=None if ttl_s is None else 1000 * ttl_s).put(name, {})
                ends[name] = float("inf") if ttl_s is None else ttl_s
            elif action == "wait":
                offset += 1
            elif action == "rebuild":
                ledger.rebuild()
            else:
                until = int(time.time() * 1000) + 1000 * 1000 * offset
                ledger.sweep(now=until)
                ends = {name: end for name, end in ends.items() if end > offset}
            assert ends.keys() == {info.id for info in StateStore(ledger).list()}
