"""
Preparation of fragments for every renderer: plain values without cycles.

Codecs are asked, what is None is gone, and a value that contains itself is dropped at the inner place.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from ..context.fragments import Fragment, as_fragment, content_of, plain_form, why_not_items
from ..errors import InvalidValueError

_LONE_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_SHOWN_STEPS: Final = 8
_SHOWN_CHARACTERS: Final = 64


class Named(msgspec.Struct, frozen=True):
    """A fragment as it is rendered: its name, its data as a plain value that is never None, and whether that is Markdown of the author's."""

    name: str
    value: "Value"
    is_markdown: bool = False


Value: TypeAlias = str | int | float | bool | Named | list["Value"] | dict[str, "Value"]
"""Text, number, boolean, fragment, or lists and objects of them. Places may share a list or object: do not change it."""


def prepare(fragments: Iterable[Fragment | Mapping[str, Any]]) -> list[Named]:
    """
    The fragments as plain values; the inputs are not changed.

    - `codec.decode()` wins over `data`. Fragments may be given as mappings of their fields; inside of data these are objects.
    - None is removed from lists and objects, and a fragment whose data is None vanishes.
    - A value that contains itself is dropped at the inner place. The same object twice side by side stays twice.
    - Mappings become dicts, tuples lists, and subclasses of text and numbers what they are subclasses of; models,
      dataclasses, sets, dates and the like are their `plain_form`. A lone surrogate in a text becomes U+FFFD, so that every
      output can be encoded.

    Any depth works. What is shared in the input is shared in the result, so the cost is that of the distinct values. An
    output repeats it at each place: ten lists, each of which holds the next one ten times, render to 10**10 leaves. The
    same holds for values that contain each other: each of them is followed from each of the others.

    Raises:
        InvalidValueError: Something is no fragment where one is needed, or no JSON value; the message names its path.
        MissingCodecError: A message without a codec, or a fragment that is still lazy.
    """
    return _Preparation().prepared(fragments)


_Child: TypeAlias = tuple[int | str | None, Any]
"""The index or key of an inner value, None for the data of a fragment, and the value."""


class _Frame:
    """A list, an object or a fragment of which the inner values are being prepared."""

    __slots__ = ("children", "fragment", "lowest", "result", "source", "step")

    def __init__(
        self,
        source: Any,
        children: Iterator[_Child],
        result: list[Value] | dict[str, Value] | None,
        fragment: Fragment | None = None,
    ) -> None:
        self.source = source
        self.children = children
        self.result: Value | None = result
        self.fragment = fragment
        self.step: int | str | None = None
        """The index or key of the child that is being prepared."""
        self.lowest: float = math.inf
        """The smallest depth of a frame that was met again inside this one."""

    def put(self, value: Value | None) -> None:
        """Take the prepared form of the child at `step`. None is left out."""
        if value is None:
            return
        if isinstance(self.result, list):
            self.result.append(value)
        elif isinstance(self.result, dict):
            assert isinstance(self.step, str), "the entries of objects have keys"
            self.result[self.step] = value
        else:
            assert self.fragment is not None, "what is neither a list nor an object is a fragment"
            self.result = Named(self.fragment.name, value, self.fragment.metadata.get("markdown") is True)


class _Preparation:
    def __init__(self) -> None:
        self._frames: list[_Frame] = []
        self._depths: dict[int, int] = {}
        """Where the open lists, objects and fragments are in `_frames`, by identity."""
        self._done: dict[int, tuple[Any, Value | None]] = {}
        """By identity; with the source, for an identity means nothing once its object is gone."""

    # The frames are a stack of our own: the one of the interpreter ends at a depth of 1,000.

    def prepared(self, fragments: Iterable[Any]) -> list[Named]:
        result: list[Value] = []
        self._frames.append(_Frame(fragments, _fragments_only(fragments), result))
        while self._frames:
            step = next(self._frames[-1].children, None)
            if step is None:
                self._close()
            else:
                self._enter(*step)
        return cast("list[Named]", result)

    def _enter(self, step: int | str | None, child: Any) -> None:
        """Prepare a child of the innermost frame; if it has inner values, it is the innermost one until they are done."""
        frame, key = self._frames[-1], id(child)
        frame.step = step
        if key in self._depths:
            frame.lowest = min(frame.lowest, self._depths[key])
        elif key in self._done:
            frame.put(self._done[key][1])
        elif (inner := self._opened(child, form := self._plain(child))) is None:
            frame.put(self._scalar(form))
        else:
            self._depths[key] = len(self._frames)
            self._frames.append(inner)

    def _close(self) -> None:
        frame = self._frames.pop()
        if not self._frames:
            return
        depth = self._depths.pop(id(frame.source))
        if frame.lowest > depth:
            # It lies on no cycle, so it is the same wherever it stands.
            self._done[id(frame.source)] = (frame.source, frame.result)
        parent = self._frames[-1]
        parent.lowest = min(parent.lowest, frame.lowest)
        parent.put(frame.result)

    def _opened(self, value: Any, form: Any) -> _Frame | None:
        """The frame of a value that has inner values: it is known by its identity, and `form` has the inner ones."""
        if isinstance(form, list | tuple):
            return _Frame(value, iter(enumerate(cast("Sequence[Any]", form))), [])
        if isinstance(form, Fragment):
            if form.codec is not None and not callable(getattr(form.codec, "decode", None)):
                msg = f"{self._path()} is fragment {form.name!r}, whose codec cannot decode; give it encode() and decode()"
                raise InvalidValueError(msg)
            return _Frame(value, iter([(None, content_of(form))]), None, form)
        if isinstance(form, Mapping):
            return _Frame(value, self._entries(cast("Mapping[Any, Any]", form)), {})
        return None

    def _plain(self, value: Any) -> Any:
        try:
            return plain_form(value)
        except InvalidValueError as error:
            msg = f"{self._path()} {error}"
            raise InvalidValueError(msg) from error

    def _entries(self, mapping: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in mapping.items():
            if not isinstance(key, str):
                msg = f"{self._path()} has a key that is a {type(key).__name__}; keys must be text"
                raise InvalidValueError(msg)
            if _LONE_SURROGATES.search(key):
                msg = f"{self._path()} has a key with a lone surrogate, which is not text; encode the bytes it came from properly"
                raise InvalidValueError(msg)
            yield str.__str__(key), value

    def _scalar(self, value: Any) -> Value | None:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value) if value.isascii() else _LONE_SURROGATES.sub("\ufffd", value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value)
        reason = (
            why_not_items(value)
            or f"is a {type(value).__name__}, which is not a JSON value; convert it to text or a list"
        )
        msg = f"{self._path()} {reason}"
        raise InvalidValueError(msg)

    def _path(self) -> str:
        """Return the path of the child that is being prepared, e.g. `rules[2].hint.text`."""
        steps: list[str] = []  # the innermost first
        for frame in reversed(self._frames[1:]):
            steps += [] if frame.step is None else [_step(frame.step)]
            steps += [] if frame.fragment is None else [_step(frame.fragment.name)]
            if len(steps) > _SHOWN_STEPS:
                return "..." + "".join(reversed(steps[:_SHOWN_STEPS]))
        return "".join(reversed(steps))[1:] or f"fragments[{self._frames[0].step}]"


def _fragments_only(values: Iterable[Any]) -> Iterator[tuple[int, Fragment]]:
    for index, value in enumerate(values):
        if not isinstance(value, Fragment | Mapping):
            msg = f"fragments[{index}] is a {type(value).__name__}, not a fragment; make one with fragment(name, ...)"
            raise InvalidValueError(msg)
        try:
            yield index, as_fragment(cast("Fragment | Mapping[str, Any]", value))
        except InvalidValueError as error:
            msg = f"fragments[{index}]: {error}"
            raise InvalidValueError(msg) from error


def _step(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN_CHARACTERS]}"


def scalar_text(value: str | float | bool) -> str:  # noqa: FBT001 - a value, not a switch
    """
    A scalar as ECMAScript's `String(value)` prints it.

    Text is as it is, booleans are `true` and `false`, and of floats -0 is `0`, 3.0 is `3`, 1e21 is `1e+21` and 1e-7 is
    `1e-7`. Integers differ in one way: they have all their digits, for an id of 22 digits must not be rounded.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return _integer_text(value) if isinstance(value, int) else _float_text(value)


def _integer_text(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python's guard: above 4,300 digits `str` is quadratic; `Decimal` is not
        return f"{Decimal(value):f}"


def _float_text(value: float) -> str:
    """The steps of Number::toString (ECMA-262, 6.1.6.1.20): the shortest digits that give the number back."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    _, all_digits, exponent = Decimal(repr(value)).as_tuple()
    written = "".join(map(str, all_digits))
    digits = written.rstrip("0")
    if not digits:
        return "0"
    assert isinstance(exponent, int), "finite numbers have an exponent"
    return "-" * (value < 0) + _positioned(digits, len(written) + exponent)


def _positioned(digits: str, point: int) -> str:
    """The number 0.`digits` times ten to the power of `point`."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


def partition(items: Iterable[Value]) -> tuple[list[Value], list[Named]]:
    """The items that are no fragments, and the fragments, both in order."""
    plain: list[Value] = []
    fragments: list[Named] = []
    for item in items:
        if isinstance(item, Named):
            fragments.append(item)
        else:
            plain.append(item)
    return plain, fragments


def by_name(fragments: Iterable[Named]) -> Mapping[str, Sequence[Named]]:
    """The fragments of each name, in order of first appearance."""
    groups: dict[str, list[Named]] = {}
    for fragment in fragments:
        groups.setdefault(fragment.name, []).append(fragment)
    return groups


def joined_scalars(items: Sequence[Value]) -> str | None:
    """The scalars of a list inside a list, as one text joined by commas; None if it holds something else."""
    if any(isinstance(item, Named | list | dict) for item in items):
        return None
    return ",".join(scalar_text(item) for item in items if not isinstance(item, Named | list | dict))


class Rendering(Protocol):
    """Anything that writes fragments as text: a `Renderer`, or another object with this method."""

    def render(self, fragments: list[Fragment], /) -> str:
        """The fragments, in order, as one text."""
        ...


@dataclass(frozen=True, kw_only=True)
class Renderer(ABC):
    """
    Writes fragments as the text of a prompt. A value without state: share it between engines and threads.

    A subclass has a method `document`, which is given plain values.

    Args:
        group_fragments: Put fragments of one name, in the data list of a fragment, under the plural of the name.
    """

    group_fragments: bool = False

    def render(self, fragments: Iterable[Fragment | Mapping[str, Any]]) -> str:
        """
        The fragments, in order, as one text; empty when nothing is left of them.

        What is None is left out, and so is a value inside of itself. XML and Markdown take any depth of nesting, TOML and
        TOON 200 levels of lists and objects.

        Raises:
            InvalidValueError: A value is neither a fragment nor JSON, nor stands for such, and the message names its path;
                or it is nested too deeply for TOML or TOON.
            MissingCodecError: A message without a codec, or a fragment that is still lazy.
        """
        return self.document(prepare(fragments))

    @abstractmethod
    def document(self, fragments: Sequence[Named]) -> str:
        """
        The text of fragments whose data are plain values: codecs were asked, and nothing is None or contains itself.

        Places may share a list or object: do not change it.
        """
