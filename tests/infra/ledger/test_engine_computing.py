"""Computed values of an engine: what succeeded survives what failed, and each is computed once (CE-10)."""

import itertools
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.engine_world import EngineWorld

from chatledger import AsyncContextEngine, AsyncLedger, ContextEngine, Fragment, Ledger, user
from chatledger.errors import InvalidValueError, ResolverError
from chatledger.fragments import fragment, hint, principle, requires_sandbox
from chatledger.reminders import reminder


class Flaky:
    """A function that fails so often, and counts its calls."""

    def __init__(self, failures: int = 1, answer: Any = "up") -> None:
        self.failures, self.answer, self.calls = failures, answer, 0

    def __call__(self) -> Any:
        self.calls += 1
        if self.calls <= self.failures:
            msg = "no route to the database"
            raise ConnectionError(msg)
        return self.answer


async def later(answer: Any) -> Any:
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    return answer


def drawn(*items: Any) -> Iterator[Any]:
    yield from items


async def drawn_later(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield await later(item)


async def begun_later(flaky: Flaky) -> Any:
    await anyio.lowlevel.checkpoint()
    return flaky()


ONE_SHOT: dict[str, Callable[[], Any]] = {
    "generator": lambda: drawn("a", "b"),
    "asynchronous generator": lambda: drawn_later("a", "b"),
    "coroutine": lambda: later(["a", "b"]),
    "iterator": lambda: iter(["a", "b"]),
    "nested": lambda: drawn("a", later("b")),
    "coroutine that gives a generator": lambda: later(drawn("a", "b")),
}


@pytest.mark.parametrize("kind", ONE_SHOT)
def test_what_succeeded_survives_what_failed(world: EngineWorld, kind: str) -> None:
    """However often something else fails, a value that can be used only once is there when all is well."""
    failures = 2
    flaky = Flaky(failures)
    engine = world.engine().set(Fragment("tables", ONE_SHOT[kind]()), Fragment("version", flaky))
    for _ in range(failures):
        with pytest.raises(ResolverError, match="version raised ConnectionError"):
            engine.resolve()
    prompt = engine.resolve().system_prompt

    assert prompt == "<tables>\n  <table>a</table>\n  <table>b</table>\n</tables>\n<version>up</version>"
    assert (engine.resolve().system_prompt, flaky.calls) == (prompt, failures + 1)


def test_a_function_in_two_places_is_called_for_both(world: EngineWorld) -> None:
    """Also where one call was kept from an evaluation that failed."""
    flaky, calls = Flaky(2), itertools.count(1)
    number = calls.__next__
    engine = world.engine().set(Fragment("d", {"one": number, "other": number}), Fragment("v", flaky))
    for _ in range(2):
        with pytest.raises(ResolverError):
            engine.resolve()
    found = re.findall(r"<(?:one|other)>(\d+)<", engine.resolve().system_prompt)

    assert len(set(found)) == 2


def test_what_an_answer_holds_is_kept_too(world: EngineWorld) -> None:
    """A generator gives a function that fails: the generator is done, and only the function is called again."""
    flaky = Flaky(1, "late")
    engine = world.engine().set(Fragment("tables", drawn("a", flaky, later("c"))))
    with pytest.raises(ResolverError, match=r"tables\[1\] raised ConnectionError"):
        engine.resolve()

    assert [item in engine.resolve().system_prompt for item in ("a", "late", "c")] == [True] * 3
    assert flaky.calls == 2


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_a_failure_of_what_is_used_up_remains(world: EngineWorld, kind: str) -> None:
    """It is never taken for an empty value, nor for another error; unset helps."""

    def broken() -> Iterator[str]:
        yield "a"
        msg = "gone"
        raise ConnectionError(msg)

    value = broken() if kind == "generator" else begun_later(Flaky(9))
    engine = world.engine().set(Fragment("tables", value, id="t"), Fragment("version", lambda: 17))
    for _ in range(3):
        with pytest.raises(ResolverError, match="tables raised ConnectionError") as raised:
            engine.resolve()
        assert isinstance(raised.value.__cause__, ConnectionError)
    engine.unset("t")

    assert engine.resolve().system_prompt == "<version>17</version>"


def test_a_function_that_gave_something_unfit_is_called_again(world: EngineWorld) -> None:
    """What it gave is no success that would be kept."""
    answers: list[Any] = [{object()}, Fragment("t", codec=Unreadable()), ["a"]]
    engine = world.engine().set(Fragment("tables", lambda: answers.pop(0)), Fragment("version", lambda: "up"))
    for reason in ("cannot be rendered", "could not be read"):
        with pytest.raises(ResolverError, match=reason):
            engine.resolve()

    assert engine.resolve().system_prompt == "<tables>a</tables>\n<version>up</version>"


class Unreadable:
    def encode(self) -> Any:
        return {}

    def decode(self) -> Any:
        raise KeyError


def test_a_missing_sandbox_costs_nothing_either(world: EngineWorld) -> None:
    """Refusals are failures like others."""

    @requires_sandbox
    def files(load: Any) -> Any:
        return load.sandbox

    engine = world.engine().set(Fragment("tables", drawn("a")), Fragment("files", files, id="f"))
    with pytest.raises(ResolverError, match="sandbox"):
        engine.resolve()
    engine.unset("f")

    assert engine.resolve().system_prompt == "<tables>a</tables>"


def test_a_replaced_fragment_is_computed_anew(world: EngineWorld) -> None:
    """What was kept belongs to the values that were set."""
    flaky = Flaky(1)
    engine = world.engine().set(Fragment("tables", drawn("a"), id="t"), Fragment("version", flaky))
    with pytest.raises(ResolverError):
        engine.resolve()
    engine.set(Fragment("tables", drawn("b"), id="t"))

    assert engine.resolve().system_prompt == "<tables>b</tables>\n<version>up</version>"


def test_threads_compute_once(ledger: Ledger) -> None:
    """Resolves at once on one engine wait for the first."""
    engine = ContextEngine(ledger, "trip", "ada")
    slow = [Flaky(0) for _ in range(3)]
    barrier = threading.Barrier(4)
    engine.set(*(Fragment("v", function) for function in slow), Fragment("tables", drawn("a")))

    def resolve() -> str:
        barrier.wait(5)
        return engine.resolve().system_prompt

    with ThreadPoolExecutor(4) as pool:
        prompts = {future.result() for future in [pool.submit(resolve) for _ in range(4)]}

    assert len(prompts) == 1
    assert [function.calls for function in slow] == [1, 1, 1]


@pytest.mark.anyio
async def test_tasks_compute_once(async_ledger: AsyncLedger) -> None:
    """Likewise; and where the first fails, the second computes only what failed."""
    engine = AsyncContextEngine(async_ledger, "trip", "ada")
    slow, flaky = Flaky(0), Flaky(1)
    engine.set(Fragment("v", lambda: begun_later(slow)), Fragment("w", begun_later(slow)), Fragment("f", flaky))
    prompts: list[str] = []
    errors: list[str] = []

    async def resolve() -> None:
        try:
            prompts.append((await engine.resolve()).system_prompt)
        except ResolverError as error:
            errors.append(error.path)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(resolve)

    assert errors == ["f"]
    assert prompts == ["<v>up</v>\n<w>up</w>\n<f>up</f>"] * 3
    assert flaky.calls == 2
    assert slow.calls <= 3


@pytest.mark.anyio
async def test_a_cancelled_resolve_leaves_the_engine_usable(async_ledger: AsyncLedger) -> None:
    """The lock is free, functions are called again, and a coroutine that was cut off says so."""
    engine = AsyncContextEngine(async_ledger, "trip", "ada")
    begun = anyio.Event()
    blocked = True

    async def slow() -> str:
        begun.set()
        if blocked:
            await anyio.sleep(3600)
        return "up"

    engine.set(Fragment("v", slow), Fragment("w", slow(), id="w"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.resolve)
        await begun.wait()
        await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    blocked = False
    with pytest.raises(ResolverError, match="w was cancelled, and gives its value only once"):
        await engine.resolve()
    engine.unset("w")

    assert (await engine.resolve()).system_prompt == "<v>up</v>"


def test_a_value_cannot_ask_for_what_it_is_part_of(world: EngineWorld) -> None:
    """It would wait for itself; messages it may read."""

    async def whole(load: Any) -> str:
        return str((await load.context.resolve()).system_prompt)

    async def turns(load: Any) -> int:
        return int(await load.context.turn_count())

    engine = world.engine().set(Fragment("whole", whole, id="whole"), Fragment("turns", turns))
    with pytest.raises(ResolverError, match="whole raised InvalidValueError") as raised:
        engine.resolve()
    assert isinstance(raised.value.__cause__, InvalidValueError)
    engine.unset("whole")

    assert engine.resolve().system_prompt == "<turns>0</turns>"


@pytest.mark.anyio
async def test_a_task_that_a_value_started_may_ask_afterwards(async_ledger: AsyncLedger) -> None:
    """It runs in the context of the value, which is computed by then."""
    engine = AsyncContextEngine(async_ledger, "trip", "ada")
    is_computed = anyio.Event()
    prompts: list[str] = []

    async def afterwards() -> None:
        await is_computed.wait()
        prompts.append((await engine.resolve()).system_prompt)

    async with anyio.create_task_group() as tasks:

        async def begin() -> str:
            tasks.start_soon(afterwards)
            return "begun"

        engine.set(Fragment("task", begin))
        await engine.resolve()
        is_computed.set()

    assert prompts == ["<task>begun</task>"]


def test_a_message_inside_of_context_is_refused(world: EngineWorld) -> None:
    """Wherever it stands; nothing of that call is set."""
    engine = world.engine()
    held = user("obey", id="m1")
    for given in (fragment("a", held), Fragment("a", {"b": [{"c": held}]}), principle("t", "d", policies=[held])):
        with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="holds message 'user'"):
            engine.set(hint("x"), given)
    with pytest.raises(InvalidValueError, match="holds message 'user'"):
        reminder(fragment("a", held))
    engine.set(fragment("a", lambda: held))
    for _ in range(2):
        with pytest.raises(InvalidValueError, match="fragment 'a' holds message 'user'"):
            engine.resolve()
