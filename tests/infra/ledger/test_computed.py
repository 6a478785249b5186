"""CE-10: computed values inside fragments."""

import asyncio
import functools
import gc
import inspect
import itertools
import threading
import time
import warnings
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextvars import ContextVar
from typing import Any, Final, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import json_values

from chatledger.domain.context.fragments import Fragment, content_of, fragment, stored_form
from chatledger.domain.context.messages import StoredCodec, message_fragment
from chatledger.domain.errors import InvalidValueError, ResolverError
from chatledger.fragments import (
    LoadContext,
    compute,
    compute_now,
    glossary,
    hint,
    last_assistant_message,
    policy,
    principle,
    requires_sandbox,
)
from chatledger.infra.ledger.engine.computed import KeptResults, compute_again, has_computed

SANDBOX: Final = object()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def computed(data: Any, **options: Any) -> Any:
    """The data of a fragment after its computed values are in place."""
    (made,) = compute_now([Fragment("a", data)], **options)
    return made.data


def failure(*fragments: Fragment, **options: Any) -> ResolverError:
    with pytest.raises(ResolverError) as raised:
        compute_now(fragments, **options)
    return raised.value


async def coroutine(value: Any = "x") -> Any:
    await anyio.lowlevel.checkpoint()
    return value


async def async_generator() -> AsyncGenerator[Any]:
    for item in ("x", "y"):
        await anyio.lowlevel.checkpoint()
        yield item


def generator() -> Generator[Any]:
    yield from ("x", "y")


async def with_load(load: LoadContext) -> Any:
    return [load.context, load.sandbox is SANDBOX, load.cancellation is None]


def context_of(load: LoadContext) -> Any:
    return load.context


class Rows:
    """Iterable, again and again."""

    def __iter__(self) -> Iterator[Any]:
        return iter(["x", "y"])


class AsyncRows:
    def __aiter__(self) -> AsyncIterator[Any]:
        return async_generator()


class Promise:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return coroutine().__await__()


class Function:
    def __call__(self) -> Any:
        return "x"


class AsyncFunction:
    async def __call__(self, load: LoadContext) -> Any:
        return load.context


# Made by functions: a coroutine gives its value only once, and parameters are made for the whole session.
KINDS: dict[str, tuple[Callable[[], Any], Any]] = {
    "coroutine": (coroutine, "x"),
    "awaitable": (Promise, "x"),
    "coroutine function": (lambda: coroutine, "x"),
    "generator": (generator, ["x", "y"]),
    "generator function": (lambda: generator, ["x", "y"]),
    "async generator": (async_generator, ["x", "y"]),
    "async generator function": (lambda: async_generator, ["x", "y"]),
    "function": (lambda: lambda: "x", "x"),
    "function with load context": (lambda: context_of, "engine"),
    "coroutine function with load context": (lambda: with_load, ["engine", True, True]),
    "partial": (lambda: functools.partial(coroutine, "y"), "y"),
    "callable object": (Function, "x"),
    "async callable object": (AsyncFunction, "engine"),
    "class": (lambda: dict, {}),
    "built-in method": (lambda: {"a": "x"}.copy, {"a": "x"}),
    "function that gives a coroutine": (lambda: lambda: coroutine(), "x"),  # noqa: PLW0108 - not a coroutine function
    "function that gives a generator": (lambda: lambda: (item for item in "xy"), ["x", "y"]),
    "coroutine that gives an async generator": (lambda: coroutine(async_generator()), ["x", "y"]),
    "iterator": (lambda: iter(["x", "y"]), ["x", "y"]),
    "iterable": (Rows, ["x", "y"]),
    "async iterable": (AsyncRows, ["x", "y"]),
    "range": (lambda: range(3), [0, 1, 2]),
    "function that gives a set": (lambda: lambda: {"b", "a"}, ["a", "b"]),
    "deque": (lambda: deque(["x", "y"]), ["x", "y"]),
    "values of an object": ({"a": "x"}.values, ["x"]),
    "nothing": (lambda: lambda: None, None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_computed_values(kind: str) -> None:
    make, expected = KINDS[kind]

    assert expected == computed(make(), context="engine", sandbox=SANDBOX)


PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (lambda value: ["a", value, "b"], lambda data: data[1]),
    "tuple": (lambda value: ("a", value), lambda data: data[1]),
    "object": (lambda value: {"a": 1, "b": value}, lambda data: data["b"]),
    "deep": (lambda value: {"a": [{"b": [[value]]}]}, lambda data: data["a"][0]["b"][0][0]),
    "fragment": (lambda value: Fragment("b", value), lambda data: data.data),
    "children": (lambda value: [fragment("b", "x", value)], lambda data: data[0].data[1]),
    "object with the keys of a fragment": (lambda value: {"name": "b", "data": value}, lambda data: data["data"]),
    "codec": (lambda value: Fragment("b", codec=StoredCodec([value])), lambda data: content_of(data)[0]),
    "policies": (
        lambda value: principle("t", "d", policies=[Fragment("b", value)]),
        lambda data: content_of(data)["policies"][0].data,
    ),
    "function": (lambda value: lambda: {"a": value}, lambda data: data["a"]),
    "items": (lambda value: iter([value]), lambda data: data[0]),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["coroutine", "function", "async generator"])
def test_wherever_they_stand(place: str, kind: str) -> None:
    """Inside lists, objects, fragments, codecs, and what other values give."""
    (make, expected), (put, find) = KINDS[kind], PLACES[place]

    assert expected == find(computed(put(make())))


def _delayed(value: Any) -> st.SearchStrategy[Any]:
    """The same data with some of its values computed."""
    if isinstance(value, list):
        inner: st.SearchStrategy[Any] = st.tuples(*map(_delayed, cast("list[Any]", value))).map(list)
        return inner | inner.map(iter) | inner.map(_later)
    if isinstance(value, dict):
        inner = st.fixed_dictionaries({key: _delayed(item) for key, item in cast("dict[str, Any]", value).items()})
        return inner | inner.map(_later)
    return st.just(value) | st.just(value).map(_later)


def _later(value: Any) -> Callable[[], Awaitable[Any]]:
    return functools.partial(coroutine, value)


@given(json_values.flatmap(lambda value: st.tuples(st.just(value), _delayed(value))))
def test_computed_data_are_the_data(case: tuple[Any, Any]) -> None:
    """Whatever part of them was computed."""
    plain, delayed = case

    assert plain == computed(delayed)


def test_the_given_fragments_are_not_changed() -> None:
    """What is not computed stays the same object, also inside a fragment of which another part is computed."""
    thing, plain = object(), fragment("b", "x")
    rows = [lambda: "x", {"a": coroutine}, ["plain"], thing, plain]
    given = [
        fragment("a", rows),
        hint("plain"),
        Fragment("b", {"c": ["plain"]}),
        Fragment("d", coroutine, id="i", metadata={"x": 1}),
    ]
    before = list(rows), dict(rows[1])  # type: ignore[call-overload]
    made = compute_now(given)

    assert ["x", {"a": "x"}, ["plain"], thing, plain] == made[0].data[0]
    assert before == (rows, rows[1])
    assert rows is given[0].data[0]
    assert plain is made[0].data[0][4]
    assert given[1] is made[1]
    assert given[2] is made[2]
    assert Fragment("d", "x", id="i", metadata={"x": 1}) == made[3]


def test_each_is_evaluated_once() -> None:
    """The result has nothing left to compute."""
    calls: list[int] = []
    made = compute_now([Fragment("a", lambda: calls.append(1)), fragment("b", generator)])

    assert not has_computed(made)
    assert all(one is other for one, other in zip(made, compute_now(made), strict=True))
    assert [1] == calls


def test_one_coroutine_in_several_places() -> None:
    """It is awaited once, and everybody gets its value."""
    once, items = coroutine(["x"]), generator()
    made = compute_now([fragment("a", once, once), Fragment("b", {"c": once, "d": [items, items]})])

    assert [["x"], ["x"]] == made[0].data
    assert {"c": ["x"], "d": [["x", "y"], ["x", "y"]]} == made[1].data
    made[0].data[0].append("z")
    assert ["x"] == made[0].data[1]


class Async(msgspec.Struct, frozen=True):
    """A codec that takes its time."""

    def encode(self) -> Any:
        return {"type": "async"}

    async def decode(self) -> Any:
        return ["x", coroutine]


def test_codecs_that_are_asynchronous() -> None:
    assert [Fragment("a", ["x", "x"])] == compute_now([Fragment("a", codec=Async())])


def test_codecs_are_kept_where_nothing_is_computed() -> None:
    """What is computed in policies leaves the other fields, and the codec, as they were."""
    given = Fragment("b", codec=Plain())
    (made,) = compute_now([fragment("a", given, coroutine)])
    built = principle("t", "d", policies=["y", policy("r", policies=[Fragment("hint", coroutine)])])

    assert given is made.data[0]
    assert [given] == compute_now([given])
    assert {"type": "plain"} == stored_form(made.data[0])
    assert [principle("t", "d", policies=["y", policy("r", policies=[Fragment("hint", "x")])])] == compute_now([built])


class Plain(msgspec.Struct, frozen=True):
    def encode(self) -> Any:
        return {"type": "plain"}

    def decode(self) -> Any:
        return ["x"]


def test_messages_pass_as_they_are() -> None:
    """Their data are not looked at, wherever they stand."""
    message = message_fragment("user", StoredCodec({"role": "user", "parts": [generator]}), "m1")
    lazy = last_assistant_message("fixed")
    given = [message, lazy, Fragment("a", [message, lazy])]

    assert not has_computed(given)
    assert all(one is other for one, other in zip(given, asyncio.run(compute(given)), strict=True))
    assert message is computed([message, coroutine])[0]


def test_coroutines_run_at_the_same_time() -> None:
    """Across fragments and depths: each waits for all others to have begun."""
    begun: list[int] = []
    everybody = anyio.Event()

    async def meet() -> str:
        begun.append(1)
        if len(begun) == 4:
            everybody.set()
        await everybody.wait()
        return "x"

    async def main() -> list[Fragment]:
        return await compute([fragment("a", meet, meet()), fragment("b", {"c": [meet]}, lambda: [meet])])

    assert [["x", "x"], [{"c": ["x"]}, ["x"]]] == [made.data for made in asyncio.run(main())]


def test_plain_functions_run_at_the_same_time() -> None:
    """In threads: a slow one holds up neither others nor the event loop."""
    barrier = threading.Barrier(3)

    def meet() -> str:
        barrier.wait(60)
        return "x"

    def items() -> Generator[str]:
        barrier.wait(60)
        yield "y"

    assert ["x", "x", ["y"]] == computed([meet, meet, items])


def optional(load: LoadContext | None = None) -> Any:
    return None if load is None else load.context


def several(*loads: LoadContext) -> Any:
    return len(loads)


def named(**options: Any) -> Any:
    return len(options)


def test_load_context() -> None:
    """Given to functions that take an argument; one that only carries a value along keeps it."""
    seen: list[Any] = []
    event = threading.Event()
    table = "trips"

    def keep(load: Any) -> None:
        seen.append(load)

    computed([keep], context="engine", sandbox=SANDBOX, cancellation=event)

    assert [LoadContext("engine", SANDBOX, event)] == seen
    assert ["trips", None, "engine", 1, 0] == computed(
        [lambda table=table: table, lambda: None, optional, several, named], context="engine"
    )


def test_requires_sandbox() -> None:
    """Without one the function is not called."""
    calls: list[Any] = []

    @requires_sandbox
    def files(load: LoadContext) -> Any:
        calls.append(load.sandbox)
        return "x"

    error = failure(Fragment("a", {"files": files}))
    assert "the computed value at a.files needs a sandbox, and there is none" == str(error)
    assert [] == calls

    assert "x" == computed(files, sandbox=SANDBOX)
    assert [SANDBOX] == calls


class Shell:
    async def run(self) -> str:
        return "x"


@pytest.mark.parametrize(
    "make",
    [
        lambda: requires_sandbox(Shell().run),
        lambda: requires_sandbox(functools.partial(coroutine, "x")),
        lambda: functools.partial(requires_sandbox(Shell().run)),
        lambda: requires_sandbox("x".lower),
        lambda: requires_sandbox(Function()),
    ],
    ids=["method", "partial", "partial of marked", "built-in", "object"],
)
def test_what_can_be_marked(make: Callable[[], Any]) -> None:
    assert "needs a sandbox" in str(failure(Fragment("a", make())))
    assert "x" == computed(make(), sandbox=SANDBOX)


def test_only_functions_are_marked() -> None:
    with pytest.raises(InvalidValueError, match="requires_sandbox marks functions, not str"):
        requires_sandbox("x")  # type: ignore[type-var]


def raises() -> Any:
    msg = "secret"
    raise KeyError(msg)


async def raises_later() -> Any:
    await anyio.lowlevel.checkpoint()
    raises()


async def coroutine_without_next() -> Any:
    return next(iter(()))


def raises_between() -> Generator[Any]:
    yield "x"
    raises()


async def raises_between_async() -> AsyncGenerator[Any]:
    yield "x"
    raises()


PATHS: dict[str, tuple[Callable[[Any], Fragment], str]] = {
    "data": (lambda value: Fragment("a", value), "a"),
    "object": (lambda value: Fragment("a", {"b": {"c": value}}), "a.b.c"),
    "list": (lambda value: fragment("a", "x", value), "a[1]"),
    "object in a list": (
        lambda value: Fragment("database", {"tables": [{}, {}, {"rows": value}]}),
        "database.tables[2].rows",
    ),
    "object in children": (
        lambda value: fragment("database", hint("x"), fragment("tables", "a", "b", {"rows": value})),
        "database.tables[2].rows",
    ),
    "one of several fragments": (
        lambda value: fragment("a", Fragment("hint", "x"), "y", Fragment("hint", value)),
        "a[2].hint",
    ),
    "fragment in an object": (lambda value: Fragment("a", {"b": Fragment("c", value)}), "a.b.c"),
    "fragment as data": (lambda value: Fragment("a", Fragment("b", value)), "a.b"),
    "codec": (lambda value: Fragment("a", codec=StoredCodec({"b": value})), "a.b"),
    "policies": (lambda value: policy("r", policies=["x", Fragment("b", value)]), "policy.policies.b"),
    "result": (lambda value: Fragment("a", lambda: {"b": [value]}), "a.b[0]"),
    "item": (lambda value: Fragment("a", {"b": iter(["x", value])}), "a.b[1]"),
    "keys that are no text": (lambda value: Fragment("a", {5: value}), "a.5"),
}


@pytest.mark.parametrize("place", PATHS)
@pytest.mark.parametrize("fail", [raises, raises_later, raises_between, raises_between_async])
def test_errors_name_the_path(place: str, fail: Any) -> None:
    """The cause is chained, and not quoted: it may say what is in the data."""
    make, path = PATHS[place]
    error = failure(make(fail))

    assert path == error.path
    assert f"the computed value at {path} raised KeyError" == str(error)
    assert isinstance(error.__cause__, KeyError)


def test_fragments_of_the_same_name_are_told_apart() -> None:
    assert "[1].table" == failure(Fragment("table", "x"), Fragment("table", raises)).path


@pytest.mark.parametrize("kind", [StopAsyncIteration, ExceptionGroup, ResolverError, RuntimeError])
def test_any_error_is_translated(kind: type[Exception]) -> None:
    """Whatever it means to the machinery; an error of a `compute` inside as well."""
    arguments: Any = ("x", [KeyError()]) if kind is ExceptionGroup else ("x", "y") if kind is ResolverError else ()

    def fail() -> Any:
        raise kind(*arguments)

    error = failure(fragment("a", fail, coroutine))
    assert f"the computed value at a[0] raised {kind.__name__}" == str(error)
    assert type(error.__cause__) is kind


@pytest.mark.parametrize("fail", [lambda: next(iter(())), coroutine_without_next], ids=["sync", "async"])
def test_the_end_of_another_iterator(fail: Any) -> None:
    """Is a `RuntimeError` in coroutines, says Python (PEP 479); in functions alike."""
    error = failure(fragment("a", fail, coroutine))

    assert "the computed value at a[0] raised RuntimeError" == str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert isinstance(error.__cause__.__cause__, StopIteration)


class Broken(msgspec.Struct, frozen=True):
    def encode(self) -> Any:
        return {}

    def decode(self) -> Any:
        msg = "secret"
        raise KeyError(msg)


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_codecs_that_fail(place: str) -> None:
    broken = Fragment("b", codec=Broken())
    error = failure(fragment("a", coroutine, broken if place == "outside" else lambda: broken))

    assert error.path == ("a.b" if place == "outside" else "a[1].b")
    assert "could not be read: the codec of fragment 'b' raised KeyError" in str(error)
    assert isinstance(error.__cause__, KeyError)


def _nested(levels: int) -> Any:
    """So many computed values, each in what another one gives."""
    value: Any = "x"
    for level in range(levels):
        value = [functools.partial(coroutine, value), [iter([value])], (lambda value=value: {"a": value})][level % 3]
    return value


def test_ten_levels() -> None:
    assert "x" in str(computed(_nested(10)))
    assert "is nested in more than 10 others" in str(failure(Fragment("a", _nested(11))))


def test_a_function_that_gives_itself() -> None:
    """Is no cycle of data, but never ends."""

    def forever() -> Any:
        return {"a": forever}

    error = failure(Fragment("b", forever))
    assert "b" + ".a" * 10 == error.path
    assert "nested in more than 10 others" in str(error)


async def _count() -> AsyncGenerator[int]:
    for number in itertools.count():
        yield number


@pytest.mark.parametrize("many", [itertools.count, _count, lambda: range(10_001)], ids=["sync", "async", "one more"])
def test_more_than_ten_thousand_items(many: Callable[[], Any]) -> None:
    """Infinite ones included."""
    error = failure(Fragment("a", {"b": many()}))

    assert "the computed value at a.b gives more than 10,000 items" == str(error)


def test_ten_thousand_items() -> None:
    """The limit is for what is computed: lists may be longer."""

    async def few() -> AsyncGenerator[int]:
        for number in range(10_000):
            yield number

    expected = list(range(10_000))
    assert [expected, expected] == computed([few(), iter(range(10_000))])
    assert 20_001 == len(computed([*range(20_000), coroutine]))


@pytest.mark.anyio
async def test_generators_are_closed() -> None:
    """Where the limit ends them, too: their `finally` runs."""
    closed: list[str] = []

    def items() -> Generator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.append("sync")

    async def async_items() -> AsyncGenerator[int]:
        try:
            async for number in _count():
                yield number
        finally:
            await anyio.lowlevel.checkpoint()
            closed.append("async")

    with pytest.raises(ResolverError, match="10,000"):
        await compute([Fragment("a", items)])
    with pytest.raises(ResolverError, match="10,000"):
        await compute([Fragment("a", async_items)])
    assert ["sync", "async"] == closed


def test_cycles_become_absent() -> None:
    """A value that contains itself is dropped at the inner place; the same value side by side is no cycle."""
    items: list[Any] = ["x", coroutine]
    items.append(items)
    entries: dict[str, Any] = {"a": coroutine}
    entries["self"] = entries
    ring: deque[Any] = deque(["x"])
    ring.append(ring)
    whole: list[Any] = [coroutine]
    whole.append(Fragment("b", whole))
    given = Fragment("d", [coroutine])
    given.data.append(given)
    shared = ["x", coroutine]
    plain: list[Any] = ["x"]
    plain.append(plain)

    assert ["x", "x"] == computed(items)
    assert {"a": "x"} == computed(entries)
    assert ["x"] == computed(ring)
    assert ["x", Fragment("b", None)] == computed(whole)
    assert [Fragment("d", ["x"])] == compute_now([given])
    assert [["x", "x"], ["x", "x"]] == computed([shared, shared])
    assert not has_computed([Fragment("a", plain)])
    assert [Fragment("a", ["x"])] == asyncio.run(compute([Fragment("a", plain)]))


def test_cycles_through_computed_values() -> None:
    def items() -> Generator[Any]:
        yield "x"
        yield [itself]

    itself = items()
    outer: list[Any] = ["x"]
    outer.append(lambda: outer)
    entries: dict[str, Any] = {"a": "x"}
    entries["b"] = coroutine(entries)

    assert ["x", []] == computed(itself)
    assert ["x"] == computed(outer)
    assert {"a": "x"} == computed(entries)


def test_data_nest_without_limit() -> None:
    value: Any = coroutine
    for level in range(20_000):
        value = [value] if level % 3 == 0 else {"a": value} if level % 3 == 1 else Fragment("b", value)
    made: Any = computed(value)
    for level in reversed(range(20_000)):
        made = made[0] if level % 3 == 0 else made["a"] if level % 3 == 1 else made.data

    assert "x" == made


class Holding(msgspec.Struct, frozen=True):
    """A codec of somebody else that holds what is to be computed."""

    value: Any

    def encode(self) -> Any:
        return {"type": "holding"}

    def decode(self) -> Any:
        return [self.value]


@pytest.fixture
def unawaited() -> Generator[list[warnings.WarningMessage]]:
    """The warnings of coroutines that nobody awaited."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found
        gc.collect()
    assert [] == [str(warning.message) for warning in found]


@pytest.mark.usefixtures("unawaited")
@pytest.mark.parametrize(
    "fail",
    [
        raises,
        raises_later,
        itertools.count,
        requires_sandbox(Function()),
        Fragment("b", codec=Broken()),
        lambda: Fragment("b", codec=Broken()),
    ],
)
@pytest.mark.matrix
def test_no_coroutine_is_left_behind(fail: Any) -> None:
    """When one value fails, none of the others warns that it was never awaited."""

    def items() -> Generator[Any]:
        yield coroutine()
        raises()

    failure(
        Fragment("f", codec=Async()),
        fragment("a", coroutine(), {"b": [coroutine()]}, lambda: [coroutine(), [lambda: coroutine()]]),  # noqa: PLW0108
        Fragment("c", fail),
        fragment("d", coroutine(), Fragment("e", codec=StoredCodec([coroutine()])), items),
        Fragment("g", codec=Holding(coroutine())),
    )


@pytest.mark.usefixtures("unawaited")
def test_no_coroutine_is_left_behind_in_what_others_give() -> None:
    """It was given together with something that fails or is too deep, and never begun. `has_computed` asks no codec."""
    failure(Fragment("a", coroutine([coroutine(), Fragment("b", codec=Broken())])))
    failure(Fragment("a", _nested(12)), fragment("b", functools.partial(coroutine, [coroutine()])))
    assert has_computed([Fragment("a", codec=Async())])


async def compute_for_an_engine(given: list[Fragment]) -> list[Fragment]:
    return await compute_again(given, LoadContext(), KeptResults())


@pytest.mark.usefixtures("unawaited")
@pytest.mark.parametrize("compute_them", [compute, compute_for_an_engine])
def test_no_coroutine_is_left_behind_by_functions(compute_them: Callable[..., Coroutine[Any, Any, Any]]) -> None:
    """One that a thread gave, too late for anybody to take it."""
    is_given = threading.Event()

    def give() -> Any:
        given = coroutine()
        is_given.set()
        return given

    async def fail() -> None:
        while not is_given.is_set():
            await anyio.lowlevel.checkpoint()
        time.sleep(0.01)  # noqa: ASYNC251 - what was given arrives while the event loop cannot notice
        raises()

    with pytest.raises(ResolverError, match="KeyError"):
        asyncio.run(compute_them([fragment("a", give, fail)]))


@pytest.mark.usefixtures("unawaited")
@pytest.mark.parametrize("is_iterated", [False, True])
def test_no_coroutine_is_left_behind_by_abandoned_functions(*, is_iterated: bool) -> None:
    cancellation, release = threading.Event(), threading.Event()
    given: list[Coroutine[Any, Any, Any]] = []

    def give() -> Any:
        cancellation.set()
        release.wait(60)
        given.append(coroutine())
        return given[0]

    def items() -> Generator[Any]:
        yield give()

    failure(fragment("a", items if is_iterated else give), cancellation=cancellation)
    release.set()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (given and inspect.getcoroutinestate(given[0]) == inspect.CORO_CLOSED):
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("x", False),
        (b"x", False),
        (None, False),
        (1.5, False),
        (["x", {"a": (1, None)}], False),
        (Fragment("b", "x"), False),
        (glossary({"a": "b"}), False),
        (principle("t", "d", policies=[hint("x")]), False),
        (object(), False),
        (Fragment("b", codec=Plain()), True),
        ({"name": "b", "codec": Plain()}, False),
        (coroutine, True),
        ([{"a": [coroutine]}], True),
        (principle("t", "d", policies=[Fragment("b", coroutine)]), True),
        (range(3), True),
        ({"x"}, False),
        ({coroutine}, True),
    ],
)
def test_has_computed(value: Any, *, is_one: bool) -> None:
    assert is_one is has_computed([hint("x"), Fragment("a", value)])


@pytest.mark.usefixtures("unawaited")
def test_cancellation_from_outside() -> None:
    """Passes through, to the values as well."""
    seen: list[str] = []

    async def main() -> None:
        begun = anyio.Event()

        async def endless() -> None:
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                seen.append("cancelled")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compute, [fragment("a", endless, coroutine(), endless)])
            await begun.wait()
            tasks.cancel_scope.cancel()
        seen.append("ended")

    asyncio.run(main())
    assert ["cancelled", "cancelled", "ended"] == seen


@pytest.mark.parametrize("event", [threading.Event, anyio.Event, asyncio.Event], ids=lambda kind: kind.__module__)
@pytest.mark.usefixtures("unawaited")
@pytest.mark.anyio
async def test_cancellation_by_an_event(event: Callable[[], Any]) -> None:
    cancellation = event()

    async def endless() -> None:
        cancellation.set()
        await anyio.sleep_forever()

    with pytest.raises(ResolverError, match=r"the computed value at a\.b was cancelled"):
        await compute([Fragment("a", {"b": endless, "c": endless}), hint("x")], cancellation=cancellation)


@pytest.mark.usefixtures("unawaited")
def test_cancelled_before_it_begins() -> None:
    """Nothing is called."""
    calls: list[int] = []
    cancellation = threading.Event()
    cancellation.set()
    error = failure(fragment("a", lambda: calls.append(1), coroutine()), cancellation=cancellation)

    assert "the computed value at a[0] was cancelled" == str(error)
    assert [] == calls
    assert [hint("x")] == compute_now([hint("x")], cancellation=cancellation)


def test_cancellation_does_not_wait_for_functions() -> None:
    """A function that blocks is left behind; an endless iterator ends by itself."""
    begun, cancellation, release, ended = (threading.Event() for _ in range(4))
    late: list[int] = []

    def blocks() -> None:
        assert begun.wait(60)
        cancellation.set()
        release.wait(60)

    def items() -> Generator[Any]:
        begun.set()
        try:
            yield "x"
            release.wait(60)
            for number in itertools.count():
                late.append(number)
                yield number
        finally:
            ended.set()

    try:
        assert "was cancelled" in str(failure(fragment("a", blocks, items), cancellation=cancellation))
    finally:
        release.set()
    assert ended.wait(60)
    assert [0] == late


@pytest.mark.usefixtures("unawaited")
@pytest.mark.anyio
async def test_a_task_that_somebody_cancelled() -> None:
    """Is a failure, not a missing value; others that wait for the same one do not hang."""
    task = asyncio.create_task(asyncio.sleep(3600))
    task.cancel()
    with pytest.raises(ResolverError, match=r"the computed value at a\[0\] was cancelled"):
        await compute([fragment("a", task, task, coroutine())])


def test_compute_in_the_loop_of_the_caller() -> None:
    """Tasks and futures belong to it."""

    async def main() -> list[Fragment]:
        future = asyncio.get_running_loop().create_future()
        future.set_result("x")
        return await compute([fragment("a", future, asyncio.create_task(coroutine("y")))])

    assert [fragment("a", "x", "y")] == asyncio.run(main())


variable: ContextVar[str] = ContextVar("variable", default="nobody")


async def read_variable() -> str:
    return variable.get()


@pytest.mark.usefixtures("unawaited")
@pytest.mark.anyio
async def test_compute_now_fails_alike_where_a_loop_runs() -> None:
    error = failure(fragment("a", coroutine(), raises))
    assert "a[1]" == error.path
    assert isinstance(error.__cause__, KeyError)


def test_compute_now_where_a_loop_runs() -> None:
    """Another one does the work, in a thread, with the variables of the caller; also in a worker thread of the loop."""

    async def main() -> Any:
        variable.set("ada")
        found = computed([read_variable, lambda: variable.get(), lambda: threading.get_ident()])  # noqa: PLW0108
        return [*found, *await anyio.to_thread.run_sync(computed, [coroutine])]

    first, second, thread, last = asyncio.run(main())
    assert ("ada", "ada", "x") == (first, second, last)
    assert thread != threading.get_ident()


def test_compute_now_without_anything_to_compute() -> None:
    given = [hint("x"), fragment("a", "y")]

    assert all(one is other for one, other in zip(given, compute_now(iter(given)), strict=True))
    assert [] == compute_now([])


@pytest.mark.parametrize("given", [None, 5, "hint", hint("x"), {"name": "a", "data": 1}, ["x"], [None]])
def test_only_fragments_are_computed(given: Any) -> None:
    with pytest.raises(InvalidValueError):
        compute_now(given)
    with pytest.raises(InvalidValueError):
        asyncio.run(compute(given))


def test_what_cancels_must_be_an_event() -> None:
    with pytest.raises(InvalidValueError, match="cancellation must have a method `is_set`"):
        compute_now([Fragment("a", coroutine)], cancellation="now")  # type: ignore[arg-type]
