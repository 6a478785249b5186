"""
Computed values in fragments: functions, awaitables and iterables, replaced by what they give.

    fragment("database", {"tables": list_tables, "version": read_version()})
"""

import functools
import inspect
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.abc
import anyio.to_thread
from anyio.from_thread import start_blocking_portal

from chatledger.domain.context.fragments import Fragment, as_fragment, why_not_items
from chatledger.domain.errors import InvalidValueError, ResolverError

from .computed_tree import (
    Cancellation,
    FragmentCopy,
    Gap,
    LoadContext,
    Path,
    is_computed,
    is_iterable,
    is_one_shot,
    leaves,
    needs_sandbox,
    only_begins,
    takes_load_context,
)

T = TypeVar("T")

MAX_ITEMS: Final = 10_000


_USED_UP: Final = "was cancelled, and gives its value only once"


class RefusedError(Exception):
    """A value that is not evaluated; the text completes `the computed value at <path> ...`."""


class _Once:
    """The result of a value that gives it only once, or the error that it gives instead from now on."""

    def __init__(self, value: Any) -> None:
        self.value = value  # held, so that no other value gets its id
        self.is_settled = anyio.Event()
        self.result: Any = None
        self.error: Exception | None = None


class KeptResults:
    """
    Results of computed values, for the next evaluation of the same fragments if this one fails.

    A value that can be used only once keeps its result, or its error, at all its places. A function that stands in two places
    was called twice, and so has two results, which go to the same two calls of the next evaluation.
    """

    def __init__(self) -> None:
        self.once: dict[int, _Once] = {}
        # With the values themselves: the id of a value that is gone is given to another.
        self._results: dict[int, list[tuple[Any, Any]]] = {}
        self._untaken: dict[int, list[tuple[Any, Any]]] = {}

    def begin(self) -> None:
        self._untaken = {key: list(results) for key, results in self._results.items()}

    def take(self, value: Any) -> list[Any]:
        """Return the result of a value, in a list, if an earlier evaluation has one for this place; else an empty list."""
        untaken = self._untaken.get(id(value))
        return [untaken.pop()[1]] if untaken else []

    def put(self, value: Any, result: Any) -> None:
        self._results.setdefault(id(value), []).append((value, result))

    def forget(self, value: Any, result: Any) -> None:
        """Do not keep a result that turned out to be unfit."""
        results = self._results.get(id(value), [])
        results[:] = [kept for kept in results if kept[1] is not result]


class Resolver:
    """
    Evaluates computed values, one step each: what one gives may hold others.

    Functions and iterators that are not asynchronous run in worker threads: a slow one does not hold up others, and
    cancellation does not wait for it.
    """

    def __init__(self, load: LoadContext, kept: KeptResults) -> None:
        self._load, self._kept = load, kept
        kept.begin()
        self._is_stopped = False
        self._produced: list[Any] = []

    async def resolve(self, value: Any) -> Any:
        """
        Return the result of a computed value.

        Raises:
            RefusedError: It needs a sandbox and there is none, gives too many items, or gives a file or another iterable
                whose items are not what it stands for.
            Exception: Whatever it raises.
        """
        if kept := self._kept.take(value):
            return kept[0]
        result = value
        if callable(result) and not inspect.isawaitable(result):
            if needs_sandbox(result) and self._load.sandbox is None:
                msg = "needs a sandbox, and there is none"
                raise RefusedError(msg)
            call = functools.partial(result, self._load) if takes_load_context(result) else result
            result = call() if only_begins(result) else await self._in_thread(call)
        if inspect.isawaitable(result):
            result = await self._only_once(result, _awaited)
        if is_iterable(result):
            if (reason := why_not_items(result)) is not None:
                raise RefusedError(reason)
            result = await (self._only_once(result, self._items) if is_one_shot(result) else self._items(result))
        self._produced.append(result)
        if not is_one_shot(value):
            self._kept.put(value, result)
        return result

    def stop(self) -> None:
        """End threads as soon as they notice."""
        self._is_stopped = True

    def discard(self, others: Iterable[Any]) -> None:
        """Close the coroutines in what was produced so far and in these others."""
        discard([*others, *self._produced])

    async def _only_once(self, value: Any, settle: Callable[[Any], Awaitable[Any]]) -> Any:
        """Settle a one-shot value once, also for others that hold it, and for later evaluations."""
        once = self._kept.once.get(id(value))
        if once is None:
            once = self._kept.once[id(value)] = _Once(value)
            try:
                once.result = await settle(value)
            except BaseException as error:
                once.error = error if isinstance(error, Exception) else RefusedError(_USED_UP)
                raise
            finally:
                once.is_settled.set()
        await once.is_settled.wait()
        if once.error is not None:
            raise once.error
        return once.result

    async def _items(self, value: Any) -> list[Any]:
        items: list[Any] = []
        self._produced.append(items)  # before there are any, so that none is forgotten where a later one fails

        def drain() -> list[Any]:
            try:
                for item in value:
                    _add(items, item)
                    if self._is_stopped:
                        break
            finally:
                if inspect.isgenerator(value):
                    value.close()
            return items  # so that a thread that was left behind discards what it has got since

        if not isinstance(cast("object", value), AsyncIterable):
            return cast("list[Any]", await self._in_thread(drain))
        try:
            async for item in value:
                _add(items, item)
        finally:
            if inspect.isasyncgen(value):
                with anyio.CancelScope(shield=True):
                    await value.aclose()
        return items

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        returned: list[Any] = []
        is_abandoned = threading.Event()

        def call() -> Exception | None:
            try:
                returned.append(function())
            except Exception as error:  # noqa: BLE001 - raised below; a future would not take a StopIteration
                return error
            self._produced += returned
            if is_abandoned.is_set():
                discard(returned)
            return None

        try:
            error = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        except BaseException:
            is_abandoned.set()  # before the look at what was returned: the thread looks in the other order
            discard(returned)
            raise
        if error is not None:
            raise error
        return returned[0]


def discard(values: Iterable[Any]) -> None:
    """Close the coroutines in these values that nobody has begun to await, nor will: Python would warn of each."""
    for leaf in leaves(values, decode=True):
        if inspect.iscoroutine(leaf) and inspect.getcoroutinestate(leaf) == inspect.CORO_CREATED:
            leaf.close()


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _add(items: list[Any], item: Any) -> None:
    items.append(item)
    if len(items) > MAX_ITEMS:
        msg = f"gives more than {MAX_ITEMS:,} items"
        raise RefusedError(msg)


MAX_DEPTH: Final = 10
_POLL_S: Final = 0.02
_CANCELLED: Final = "was cancelled"


async def compute(
    fragments: Iterable[Fragment],
    *,
    context: Any = None,
    sandbox: Any = None,
    cancellation: Cancellation | None = None,
) -> list[Fragment]:
    """
    The fragments with their computed values replaced by what these give, all evaluated at the same time.

    Functions are called (with a `LoadContext` if they take an argument), awaitables awaited, iterables become lists. What
    they give is evaluated in turn. Functions that are not asynchronous run in worker threads. Works with asyncio and trio.

    Args:
        fragments: Context fragments. Neither they nor their data are changed; messages pass as they are.
        context: For the functions, e.g. the engine that the fragments belong to.
        sandbox: For the functions; see `requires_sandbox`.
        cancellation: Ends the evaluation once it is set.

    Returns:
        As many fragments, in the same order. Those without computed values are the given ones. Keep the others instead of
        the given ones: a coroutine or an iterator gives its value only once.

    Raises:
        ResolverError: A value raised (its error is chained), needs a sandbox and there is none, was cancelled, gives more
            than 10,000 items, or is nested in more than 10 others. No fragment is computed then.
        InvalidValueError: They are no fragments, or hold a file, or another iterable whose items are not what it stands for.
    """
    if cancellation is not None and not callable(getattr(cancellation, "is_set", None)):
        msg = f"cancellation must have a method `is_set`, as threading.Event has, not {type(cancellation).__name__}"
        raise InvalidValueError(msg)
    evaluation = _Evaluation(_as_list(fragments), LoadContext(context, sandbox, cancellation), KeptResults())
    try:
        return await evaluation.run()
    except BaseException:
        evaluation.discard()
        raise


def compute_now(
    fragments: Iterable[Fragment],
    *,
    context: Any = None,
    sandbox: Any = None,
    cancellation: Cancellation | None = None,
) -> list[Fragment]:
    """
    Compute values in programs that are not asynchronous; see `compute`.

    Where an event loop runs in this thread, it stands still meanwhile, and the values are computed by another one: use
    `compute` there, and always for tasks and futures, which belong to their loop.
    """
    checked = _as_list(fragments)
    if not has_computed(checked):
        return checked
    return run_now(functools.partial(compute, checked, context=context, sandbox=sandbox, cancellation=cancellation))


def run_now(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of a coroutine function, in an event loop of its own."""
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:  # no loop runs in this thread
        return anyio.run(call)
    with start_blocking_portal() as portal:  # a loop does, and no other can run in its thread
        result: T = portal.call(call)
        return result


async def compute_again(fragments: Iterable[Fragment], load: LoadContext, kept: KeptResults) -> list[Fragment]:
    """
    Compute fragments as `compute` does, so that it can be done again after a failure: what succeeded is in `kept`.

    Where a value fails, those that give their value only once are awaited, since they could not be begun again.
    """
    return await _Evaluation(list(fragments), load, kept, is_repeatable=True).run()


def has_computed(fragments: Iterable[Fragment]) -> bool:
    """Whether `compute` may find something to do. Also True for codecs other than our own: they are not asked for data."""
    return any(isinstance(leaf, Fragment) or is_computed(leaf) for leaf in leaves(fragments, decode=False))


class _Evaluation:
    def __init__(
        self, fragments: list[Fragment], load: LoadContext, kept: KeptResults, *, is_repeatable: bool = False
    ) -> None:
        self._fragments, self._load, self._kept, self._is_repeatable = fragments, load, kept, is_repeatable
        self._copy = FragmentCopy(fragments)
        self._resolver = Resolver(load, kept)
        self._tasks: anyio.abc.TaskGroup
        self._running: dict[int, Path | None] = {}
        self._restartable: list[anyio.CancelScope] = []
        self._failure: ResolverError | None = None

    async def run(self) -> list[Fragment]:
        """Evaluate all computed values, and return the fragments with the results."""
        try:
            roots = list(self._copy.roots())
            if not roots:
                return self._copy.closed()
            cancellation = self._load.cancellation
            if cancellation is not None and cancellation.is_set():
                raise ResolverError(str(roots[0][1].path), _CANCELLED)
            async with anyio.create_task_group() as watching:
                if cancellation is not None:
                    watching.start_soon(self._watch, cancellation)
                async with anyio.create_task_group() as self._tasks:
                    for value, gap in roots:
                        self._begin(value, gap)
                watching.cancel_scope.cancel()
        finally:
            self._resolver.stop()
        if self._failure is not None:
            raise self._failure
        return self._copy.closed()

    def discard(self) -> None:
        self._resolver.discard([*self._fragments, *self._copy.decoded])

    def _begin(self, value: Any, gap: Gap) -> None:
        if gap.depth > MAX_DEPTH:
            self._fail(gap.path, f"is nested in more than {MAX_DEPTH} others")
            return
        if self._failure is None:
            self._running[id(gap)] = gap.path
            self._tasks.start_soon(self._resolve, value, gap)

    async def _resolve(self, value: Any, gap: Gap) -> None:
        # Not cancelled where another value fails, if the caller may try again: it could not be begun a second time.
        if is_one_shot(value):
            await self._resolve_to_end(value, gap)
            return
        if self._failure is not None:
            del self._running[id(gap)]
            return
        with anyio.CancelScope() as scope:
            self._restartable.append(scope)
            await self._resolve_to_end(value, gap)

    async def _resolve_to_end(self, value: Any, gap: Gap) -> None:
        try:
            result = await self._resolver.resolve(value)
        except RefusedError as refusal:
            self._fail(gap.path, str(refusal))
        except Exception as error:  # noqa: BLE001 - chained
            self._fail(gap.path, f"raised {type(error).__name__}", error)
        except anyio.get_cancelled_exc_class():
            # Whether we are cancelled or only what was awaited: without this value there is no result.
            self._fail(gap.path, _CANCELLED)
            raise
        else:
            # A function may give itself, which is no cycle but a mistake.
            self._fill(gap if callable(value) else gap.within(value), value, result)
        finally:
            del self._running[id(gap)]

    def _fill(self, gap: Gap, value: Any, result: Any) -> None:
        try:
            inner_values = list(self._copy.fill(gap, result))
        except (InvalidValueError, ResolverError) as error:
            self._kept.forget(value, result)
            if isinstance(error, ResolverError):
                self._end(error)
            else:
                self._fail(gap.path, f"gave a value that cannot be rendered: {error}", error)
            return
        for inner_value, inner in inner_values:
            self._begin(inner_value, inner)

    async def _watch(self, cancellation: Cancellation) -> None:
        while not cancellation.is_set():  # noqa: ASYNC110 - a `threading.Event` cannot be awaited
            await anyio.sleep(_POLL_S)
        for path in list(self._running.values()):
            self._fail(path, _CANCELLED)

    def _fail(self, path: Path | None, reason: str, cause: Exception | None = None) -> None:
        error = ResolverError(str(path), reason)
        error.__cause__ = cause
        self._end(error)

    def _end(self, error: ResolverError) -> None:
        if self._failure is None:
            self._failure = error
        if not self._is_repeatable:
            self._tasks.cancel_scope.cancel()
        for scope in self._restartable:
            scope.cancel()


def _as_list(fragments: Any) -> list[Fragment]:
    kind = type(fragments).__name__
    if isinstance(fragments, Fragment | Mapping | str) or not isinstance(fragments, Iterable):
        msg = f"expected a list of fragments, not {kind}"
        raise InvalidValueError(msg)
    return [as_fragment(value) for value in cast("Iterable[Any]", fragments)]
