"""Finding computed values: what counts as one, and walking and copying fragment data without recursion."""

import functools
import inspect
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from chatledger.domain.context.builders import BuiltCodec, ObjectCodec
from chatledger.domain.context.fragments import Fragment, is_message_fragment, is_model, plain_form, why_not_items
from chatledger.domain.context.messages import StoredCodec
from chatledger.domain.errors import InvalidValueError, ResolverError

_SANDBOXED: Final = "__chatledger_requires_sandbox__"
_PLAIN: Final = (
    str, bytes, bytearray, memoryview, int, float, NoneType, list, tuple, set, frozenset, Mapping, Fragment,
)  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


class Cancellation(Protocol):
    """A signal to end an evaluation: a `threading.Event`, `anyio.Event` or `asyncio.Event`."""

    def is_set(self) -> bool:
        """Whether the evaluation is to end."""
        ...


class LoadContext(msgspec.Struct, frozen=True):
    """
    The argument of a function inside fragment data.

    Attributes:
        context: What the fragments are for, e.g. the context engine.
        sandbox: Where code may run; None when there is none.
        cancellation: Set when the evaluation is to end. For functions that take long.
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
    """Whether this is text, a number, None, a list, a set, an object or a fragment: nothing to compute at this place."""
    return isinstance(value, _PLAIN) or is_model(value)


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


_ABSENT: Final = object()


class Path(NamedTuple):
    """The path to a value: `database.tables[2].rows`."""

    around: "Path | None"
    step: str

    def __str__(self) -> str:
        steps: list[str] = []
        path: Path | None = self
        while path is not None:
            steps.append(path.step)
            path = path.around
        return "".join(reversed(steps)).removeprefix(".")


class Node:
    """A list, object or fragment that is being copied. `content` of a fragment is the list of its data alone."""

    def __init__(self, original: Any, content: Any, around: "tuple[Node, Any] | None" = None) -> None:
        self.original, self.content, self.around = original, content, around
        self.has_changed = False


class Gap(NamedTuple):
    """A place of a copy that waits for a computed value."""

    node: Node
    key: Any
    path: Path | None
    depth: int
    inside: frozenset[int]

    def within(self, value: Any) -> "Gap":
        """Return this place for the result of a value; the value itself is absent in it."""
        return self._replace(inside=self.inside | {id(value)})


class FragmentCopy:
    """A copy of fragments, in which computed values are replaced by what they give and cycles are absent."""

    def __init__(self, fragments: list[Fragment]) -> None:
        self._top = Node(None, [fragments])
        self._nodes: list[Node] = []
        self.decoded: list[Any] = []
        """The data of codecs: kept, since they are told from others by their identity."""

    def roots(self) -> Iterator[tuple[Any, Gap]]:
        """Copy the fragments. Gives their computed values, with the gap that each leaves."""
        return self.fill(Gap(self._top, 0, None, 0, frozenset()), self._top.content[0])

    def fill(self, gap: Gap, value: Any) -> Iterator[tuple[Any, Gap]]:
        """
        Copy a value into a gap. Gives its computed values, with the gap that each leaves.

        Raises:
            ResolverError: A codec cannot decode.
            InvalidValueError: A value is a file, or another iterable whose items are not what it stands for.
        """
        active = set(gap.inside)
        # What is to be copied; and, as bare ids, the containers that are left once all before is done.
        pending: list[tuple[Any, Gap] | int] = [(value, gap)]
        while pending:
            step = pending.pop()
            if isinstance(step, int):
                active.discard(step)
                continue
            inner, place = step
            if id(inner) in active:
                self._put(place, _ABSENT, is_change=True)
            elif is_computed(inner):
                is_called_first = callable(inner) or inspect.isawaitable(inner)
                if not is_called_first and (reason := why_not_items(inner)) is not None:
                    msg = f"{place.path} {reason}"
                    raise InvalidValueError(msg)
                place.node.has_changed = True
                yield inner, place._replace(depth=gap.depth + 1, inside=frozenset(active))
            elif (opened := self._opened(inner, place)) is None:
                self._put(place, inner)
            else:
                active.add(id(inner))
                pending += [id(inner), *reversed(opened)]

    def closed(self) -> list[Fragment]:
        """The copied fragments; those in which nothing was computed are the given ones."""
        # From the inside out, as a node is put into the one around it.
        for node in reversed(self._nodes):
            content = node.content
            if isinstance(cast("object", content), dict):
                for key in [key for key, value in content.items() if value is _ABSENT]:
                    del content[key]
            else:
                content[:] = [value for value in content if value is not _ABSENT]
            if node.around is not None:
                self._put(Gap(*node.around, None, 0, frozenset()), _closed(node), is_change=node.has_changed)
        return cast("list[Fragment]", self._top.content[0])

    def _put(self, gap: Gap, value: Any, *, is_change: bool = False) -> None:
        gap.node.content[gap.key] = value
        gap.node.has_changed |= is_change

    def _opened(self, value: Any, gap: Gap) -> list[tuple[Any, Gap]] | None:
        """Return the items of a container, with their places in its copy; None of anything else."""
        if is_message_fragment(value):
            return None
        if isinstance(value, Fragment):
            path = Path(gap.path, f".{value.name}")
            node = self._node(value, [None], gap)
            return [(self._data(value, path), Gap(node, 0, path, 0, frozenset()))]
        form = _plain(value, gap.path)
        if isinstance(form, Mapping):
            mapping = cast("Mapping[Any, Any]", form)
            node = self._node(value, dict.fromkeys(mapping), gap)
            return [(item, Gap(node, key, Path(gap.path, f".{key}"), 0, frozenset())) for key, item in mapping.items()]
        if isinstance(form, list | tuple):
            items = cast("list[Any]", form)
            node = self._node(value, [None] * len(items), gap)
            return [
                (item, Gap(node, index, path, 0, frozenset()))
                for index, (item, path) in enumerate(zip(items, _paths(items, gap.path), strict=True))
            ]
        return None

    def _node(self, original: Any, content: Any, gap: Gap) -> Node:
        node = Node(original, content, (gap.node, gap.key))
        self._nodes.append(node)
        return node

    def _data(self, fragment: Fragment, path: Path) -> Any:
        if fragment.codec is None:
            return fragment.data
        try:
            data = fragment.codec.decode()
        except Exception as error:
            msg = f"could not be read: the codec of fragment {fragment.name!r} raised {type(error).__name__}"
            raise ResolverError(str(path), msg) from error
        self.decoded.append(data)
        return data


def leaves(values: Iterable[Any], *, decode: bool) -> Iterator[Any]:
    """
    Return the leaves of context fragments (neither list nor object nor fragment), each once.

    Args:
        values: Fragments, and data of fragments.
        decode: Ask codecs of other people for their data; else give the fragments that have one.
    """
    seen: dict[int, Any] = {}  # with the values: the id of a value that is gone is given to another
    pending = list(values)
    while pending:
        value = pending.pop()
        if id(value) in seen or is_message_fragment(value):
            continue
        seen[id(value)] = value
        codec = value.codec if isinstance(value, Fragment) else None
        if codec is not None:
            is_ours = isinstance(codec, BuiltCodec | StoredCodec)
            if is_ours or decode:
                pending.extend(_decoded(codec))
            else:
                yield value
        elif isinstance(value, Fragment):
            pending.append(value.data)
        else:
            try:
                form = value if is_computed(value) else plain_form(value)
            except InvalidValueError:  # reported where the data are needed
                form = list(cast("set[Any]", value)) if isinstance(value, set | frozenset) else value
            if isinstance(form, Mapping):
                pending.extend(cast("Mapping[Any, Any]", form).values())
            elif isinstance(form, list | tuple):
                pending.extend(cast("list[Any]", form))
            else:
                yield value


def _decoded(codec: Any) -> list[Any]:
    try:
        return [codec.decode()]
    except Exception:  # noqa: BLE001 - reported where the data are needed
        return []


def _plain(value: Any, path: Path | None) -> Any:
    try:
        return plain_form(value)
    except InvalidValueError as error:
        msg = f"{path} {error}"
        raise InvalidValueError(msg) from error


def _paths(items: list[Any], around: Path | None) -> list[Path | None]:
    """A fragment goes by its name, other items by their index; fragments of the same name by both."""
    names = Counter(item.name for item in items if isinstance(item, Fragment))
    return [
        around if isinstance(item, Fragment) and names[item.name] == 1 else Path(around, f"[{index}]")
        for index, item in enumerate(items)
    ]


def _closed(node: Node) -> Any:
    if not isinstance(node.original, Fragment):
        return node.content
    if not node.has_changed:
        return node.original
    data = node.content[0] if node.content else None
    codec = node.original.codec
    codec = ObjectCodec.of(codec.type, cast("dict[str, Any]", data)) if isinstance(codec, ObjectCodec) else None
    return msgspec.structs.replace(node.original, data=data, codec=codec)
