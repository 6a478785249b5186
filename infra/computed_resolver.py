"""What a computed value gives: calling, awaiting and iterating, with limits."""

import functools
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, Final, cast

import anyio
import anyio.to_thread

from .computed_kinds import LoadContext, is_iterable, is_one_shot, needs_sandbox, only_begins, takes_load_context
from .computed_tree import leaves

MAX_ITEMS: Final = 10_000


class RefusedError(Exception):
    """A value that is not evaluated; the text completes `the computed value at <path> ...`."""


class Resolver:
    """
    Evaluates computed values, one step each: what one gives may hold others.

    Functions and iterators that are not asynchronous run in worker threads: a slow one does not hold up others, and
    cancellation does not wait for it.
    """

    def __init__(self, load: LoadContext) -> None:
        self._load = load
        self._once: dict[int, _Once] = {}
        self._is_stopped = False
        self._given: list[Any] = []

    async def resolve(self, value: Any) -> Any:
        """
        What a computed value gives.

        Raises:
            RefusedError: It needs a sandbox and there is none, or gives too many items.
            Exception: Whatever it raises.
        """
        if callable(value) and not inspect.isawaitable(value):
            value = await self._called(value)
        if inspect.isawaitable(value):
            value = await self._only_once(value, _awaited)
        if is_iterable(value):
            value = await (self._only_once(value, self._items) if is_one_shot(value) else self._items(value))
        self._given.append(value)
        return value

    def stop(self, others: Iterable[Any]) -> None:
        """End threads as soon as they notice, and close the coroutines in what was given so far and in these others."""
        self._is_stopped = True
        discard([*others, *self._given])

    async def _only_once(self, value: Any, settle: Callable[[Any], Awaitable[Any]]) -> Any:
        """What a one-shot gives, also to others that hold the same one."""
        once = self._once.get(id(value))
        if once is not None:
            await once.is_settled.wait()
            return once.result
        once = self._once[id(value)] = _Once(value)
        once.result = await settle(value)  # where this fails, the whole evaluation ends, and whoever waits with it
        once.is_settled.set()
        return once.result

    async def _called(self, function: Callable[..., Any]) -> Any:
        if needs_sandbox(function) and self._load.sandbox is None:
            msg = "needs a sandbox, and there is none"
            raise RefusedError(msg)
        call = functools.partial(function, self._load) if takes_load_context(function) else function
        return call() if only_begins(function) else await self._in_thread(call)

    async def _items(self, value: Any) -> list[Any]:
        if isinstance(value, AsyncIterable):
            return await self._drained_async(cast("AsyncIterable[Any]", value))
        return cast("list[Any]", await self._in_thread(functools.partial(self._drained, value)))

    def _drained(self, value: Iterable[Any]) -> list[Any]:
        items = self._begun()
        try:
            for item in value:
                _add(items, item)
                if self._is_stopped:
                    break
        finally:
            if inspect.isgenerator(value):
                value.close()
        return items

    async def _drained_async(self, value: AsyncIterable[Any]) -> list[Any]:
        items = self._begun()
        try:
            async for item in value:
                _add(items, item)
        finally:
            if inspect.isasyncgen(value):
                with anyio.CancelScope(shield=True):
                    await value.aclose()
        return items

    def _begun(self) -> list[Any]:
        """A list for items: known before they are, so that none is forgotten where a later one fails."""
        items: list[Any] = []
        self._given.append(items)
        return items

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        result, error = await anyio.to_thread.run_sync(self._outcome, function, abandon_on_cancel=True)
        if error is not None:
            raise error
        return result

    def _outcome(self, function: Callable[[], Any]) -> tuple[Any, Exception | None]:
        try:
            result, error = function(), None
        except Exception as raised:  # noqa: BLE001 - `_in_thread` raises it; a future would not take a StopIteration
            result, error = None, raised
        self._given.append(result)
        if self._is_stopped:  # nobody waits any more
            discard(self._given)
        return result, error


class _Once:
    def __init__(self, value: Any) -> None:
        self.value = value  # kept, since it is known by its id
        self.is_settled = anyio.Event()
        self.result: Any = None


def discard(values: Iterable[Any]) -> None:
    """Close the coroutines in these: nobody will await them, and Python would warn of each."""
    for leaf in leaves(values, decode=True):
        if inspect.iscoroutine(leaf):
            leaf.close()


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _add(items: list[Any], item: Any) -> None:
    items.append(item)
    if len(items) > MAX_ITEMS:
        msg = f"gives more than {MAX_ITEMS:,} items"
        raise RefusedError(msg)
