"""Several context engines on one chat at the same moment (SM-26, SM-48, acceptance SM 8 and 12)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.store_world import together
from tests.support.engine_world import KINDS, EngineWorld
from tests.support.ledger_world import Worker, check_chat

from chatledger import ContextEngine, HeadConflictError, LogUnavailableError, assistant, user


@pytest.fixture(params=[(kind, place) for place in ("memory:", "path") for kind in KINDS], ids=" ".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EngineWorld]:
    kind, place = request.param
    with EngineWorld(kind, tmp_path / "data" if place == "path" else place) as world:
        yield world


def save_until_done(engine: ContextEngine) -> None:
    while True:
        try:
            engine.save()
        except HeadConflictError:
            continue
        return


@pytest.mark.soak
def test_twenty_engines(world: EngineWorld) -> None:
    """
    20 engines, 10 turns each on `main`: all 200 turns are in the chain, once, and none is elsewhere (acceptance SM 12).

    Each turn is whole: the answer follows its question. The source leaves lost messages on no branch.
    """
    world.engine().save()
    engines = [world.engine() for _ in range(20)]

    def talk(number: int) -> None:
        for turn in range(10):
            mine = f"{number}.{turn}"
            save_until_done(engines[number].set(user(mine, id=f"u{mine}"), assistant(mine, f"a{mine}")))

    together(20, talk)
    chain = world.chain()

    assert sorted(chain) == sorted(f"{who}{n}.{t}" for who in "ua" for n in range(20) for t in range(10))
    assert chain[1::2] == [f"a{one[1:]}" for one in chain[::2]]
    for number in range(20):
        mine = [one for one in chain if one.startswith(f"u{number}.")]
        assert mine == [f"u{number}.{turn}" for turn in range(10)]
    assert {node.id for node in world.ledger.graph(world.chat).nodes} == set(chain)
    assert list(world.branches()) == ["main"]


def test_first_uses_at_once(world: EngineWorld) -> None:
    """Many engines make one chat, and all their messages are in it."""
    engines = [world.engine(metadata={f"k{number}": number}).set(user("hi", id=f"m{number}")) for number in range(10)]
    together(10, lambda number: save_until_done(engines[number]))

    assert sorted(world.chain()) == sorted(f"m{number}" for number in range(10))
    assert world.events().count("chat_created") == 1
    chat = world.ledger.get_chat(world.chat)
    assert chat is not None
    assert chat.metadata == {f"k{number}": number for number in range(10)}


@pytest.mark.matrix
@pytest.mark.parametrize("how", ["rewind", "btw", "restore", "edit", "fork"])
def test_engines_that_branch_at_once(world: EngineWorld, how: str) -> None:
    """
    All succeed, with different names (SM-26, acceptance SM 8).

    In the source the second fails.
    """
    count = 8
    first = world.saved(user("one", id="m1"), user("two", id="m2"))
    first.checkpoint("here")
    engines = [world.engine() for _ in range(count)]
    for engine in engines:
        engine.resolve()
    if how == "fork":
        first.set(user("three", id="m3")).save()

    def branch(number: int) -> Any:
        engine = engines[number]
        if how == "edit":
            return engine.set(user(f"edited {number}", id="m2")).save().branch
        if how == "fork":
            return engine.set(user(f"late {number}")).save(on_conflict="fork").branch
        if how == "btw":
            return engine.btw().name
        return (engine.rewind("m1") if how == "rewind" else engine.restore("here")).name

    names = together(count, branch)

    assert len(set(names)) == count
    assert set(names) == {f"main-v{number}" for number in range(2, count + 2)}
    assert set(world.branches()) == {"main", *names}
    assert (world.active() in names) == (how != "btw")


def test_engines_on_their_own_branches(world: EngineWorld) -> None:
    """Each writes on its own, whatever the others switch; no message is on another's branch."""
    world.saved(user("root", id="root"))
    engines = [world.engine() for _ in range(6)]

    def work(number: int) -> str:
        engine = engines[number]
        name = engine.rewind("root").name
        for turn in range(5):
            engine.set(user("x", id=f"{number}.{turn}")).save()
        return name

    names = together(6, work)

    for number, name in enumerate(names):
        assert world.chain(name) == ["root", *(f"{number}.{turn}" for turn in range(5))]


def test_the_same_queue_saved_by_two_engines(world: EngineWorld) -> None:
    """As when a job runs twice: each message is there once, whoever was first (SM-47, SM-48)."""
    world.engine().save()
    for turn in range(10):
        messages = [user(f"{turn}", id=f"u{turn}"), assistant(f"{turn}", f"a{turn}")]
        engines = [world.engine().set(*messages) for _ in range(3)]
        for engine in engines:
            engine.resolve()
        together(3, lambda number, engines=engines: save_until_done(engines[number]))  # type: ignore[misc]

    assert world.branches() == {"main": [f"{who}{turn}" for turn in range(10) for who in "ua"]}


@pytest.mark.soak
def test_an_engine_beside_another_process(tmp_path: Path) -> None:
    """Another process appends to the branch all the while: one chain with everything, and engines see it."""
    path = tmp_path / "data"
    with EngineWorld("sync", path) as world, Worker(path, durability="fast").ready() as worker:
        world.engine().save()
        engine = world.engine()
        worker.send("storm", "w", [world.chat], 30)
        for turn in range(30):
            save_until_done(engine.set(user(f"{turn}", id=f"e{turn}")))
        assert worker.receive() == ["ok", 30]
        world.ledger.sync()
        chain = world.chain()

        assert sorted(chain) == sorted([*(f"e{turn}" for turn in range(30)), *(f"w-{turn}" for turn in range(30))])
        assert [one["id"] for one in engine.resolve().messages if one["id"].startswith("e")] == [
            one for one in chain if one.startswith("e")
        ]
        check_chat(world.ledger, world.chat)


def test_a_log_that_fails_now_and_then(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third append fails, before or after writing: with retries all turns are there once."""
    from tests.support.ledger_world import internals

    world.engine().save()
    log = internals(world.ledger).log
    append, count = log.append, iter(range(10_000))

    def faulty(*args: Any, **kwargs: Any) -> list[int]:
        number = next(count)
        msg = "the log did not answer"
        if number % 6 == 2:
            raise LogUnavailableError(msg)
        positions: list[int] = append(*args, **kwargs)
        if number % 6 == 5:
            raise LogUnavailableError(msg)
        return positions

    monkeypatch.setattr(log, "append", faulty)
    engines = [world.engine() for _ in range(4)]

    def talk(number: int) -> None:
        engine, turn = engines[number], 0
        while turn < 8 or engine.pending:
            if turn < 8:
                engine.set(user(f"{turn}", id=f"{number}.{turn}"))
                turn += 1
            try:
                engine.save()
            except (HeadConflictError, LogUnavailableError):
                continue

    together(4, talk)
    monkeypatch.undo()
    world.ledger.sync()
    chain = world.chain()

    assert sorted(chain) == sorted(f"{number}.{turn}" for number in range(4) for turn in range(8))
    assert {node.id for node in world.ledger.graph(world.chat).nodes} == set(chain)
