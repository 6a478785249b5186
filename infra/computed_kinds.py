"""What counts as a computed value, and what functions are called with."""

import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from chatledger.domain.context.fragment import Fragment
from chatledger.domain.errors import InvalidValueError

_SANDBOXED: Final = "__chatledger_requires_sandbox__"
_PLAIN: Final = (str, bytes, bytearray, memoryview, int, float, NoneType, list, tuple, Mapping, Fragment)

F = TypeVar("F", bound=Callable[..., Any])


class Cancellation(Protocol):
    """What says that an evaluation shall end: a `threading.Event`, `anyio.Event` or `asyncio.Event`."""

    def is_set(self) -> bool:
        """Whether it shall."""
        ...


class LoadContext(msgspec.Struct, frozen=True):
    """
    What a function inside fragment data is called with.

    Attributes:
        context: What the fragments are for, e.g. the context engine.
        sandbox: Where code may run; None when there is none.
        cancellation: Set when the evaluation shall end. For functions that take long.
    """

    context: Any = None
    sandbox: Any = None
    cancellation: Cancellation | None = None


def requires_sandbox(function: F) -> F:
    """
    Mark a function as one that needs a sandbox: where there is none it is not called, and `ResolverError` is raised.

    Example:
        @requires_sandbox
        async def files(load):
            return await load.sandbox.list_files()
    """
    if not callable(function):
        msg = f"requires_sandbox marks functions, not {type(function).__name__}"
        raise InvalidValueError(msg)
    try:
        setattr(function, _SANDBOXED, True)
    except AttributeError:  # a bound method, or a built-in
        function = cast("F", functools.partial(function))
        setattr(function, _SANDBOXED, True)
    return function


def needs_sandbox(function: Any) -> bool:
    """Whether a function is marked by `requires_sandbox`."""
    return any(getattr(each, _SANDBOXED, None) is True for each in _layers(function))


def is_plain(value: Any) -> bool:
    """Whether this is text, a number, None, a list, an object or a fragment: nothing to compute at this place."""
    return isinstance(value, _PLAIN)


def is_computed(value: Any) -> bool:
    """Whether this stands for a value: a function, an awaitable, or what can be iterated over and is no plain data."""
    return not is_plain(value) and (callable(value) or inspect.isawaitable(value) or is_iterable(value))


def is_iterable(value: Any) -> bool:
    """Whether this can be iterated over, and is no plain data."""
    return not is_plain(value) and isinstance(value, Iterable | AsyncIterable)


def is_one_shot(value: Any) -> bool:
    """Whether this gives its value only once."""
    return isinstance(value, Iterator | AsyncIterator) or inspect.isawaitable(value)


def takes_load_context(function: Callable[..., Any]) -> bool:
    """Whether a function takes an argument, other than one that carries a value along: `lambda table=table: ...`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    positional = [each for each in parameters if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}]
    if not positional:
        return any(each.kind == each.VAR_POSITIONAL for each in parameters)
    return positional[0].default is inspect.Parameter.empty or positional[0].default is None


def only_begins(function: Any) -> bool:
    """Whether a call returns at once and the work is done later: of asynchronous functions, and of generators."""
    function = _layers(function)[-1]
    if not inspect.isroutine(function):
        function = type(function).__call__
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)


def _layers(function: Any) -> list[Any]:
    """A function and, of a partial one, what it calls in the end, from the outside in."""
    layers = [function]
    while isinstance(layers[-1], functools.partial):
        layers.append(cast("functools.partial[Any]", layers[-1]).func)
    return layers
