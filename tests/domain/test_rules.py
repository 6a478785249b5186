import json
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import ids, json_values

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import (
    MAX_JSON_DEPTH,
    check_count,
    check_id,
    check_metadata,
    check_optional_id,
    check_time,
    json_copy,
    same_json,
    walked_json_copy,
)


class Colour(str, Enum):  # noqa: UP042 (a `StrEnum` is its value as text; the older kind is not)
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


class Items(list[Any]):
    """A list that is read in another order than it is stored."""

    def __iter__(self) -> Any:
        return reversed(self)


class Lines(dict[str, Any]):
    """An object that shows other items than it stores."""

    def items(self) -> Any:
        return [("shown", item) for item in self.values()]


class Ratio(float):
    __slots__ = ()


@dataclass
class Point:
    x: int = 1


class Shape(msgspec.Struct):
    corners: int = 3


class Kind(Enum):
    A = "a"


def _moved(items: dict[str, Any]) -> OrderedDict[str, Any]:
    ordered = OrderedDict(items)
    if ordered:
        ordered.move_to_end(next(iter(ordered)))
    return ordered


_STRANGE: list[Any] = [
    *(math.nan, math.inf, -math.inf, -0.0, 2**64, 2**64 - 1, -(2**63), -(2**63) - 1, 10**30),
    *("\ud800", "a\udfff", Text("a"), Text("\ud800"), Colour.RED, Level.HIGH, Kind.A, Ratio(1.5), Ratio("nan")),
    *(b"bytes", bytearray(b"x"), memoryview(b"x"), 1j, object, len, ..., (), (1,), {1}, frozenset({"a"}), range(2)),
    *(Point(), Shape(), msgspec.Raw(b"\x01"), Decimal("1.5"), UUID(int=1), datetime(2024, 1, 1, tzinfo=UTC)),
    *({1: 2}, {None: 1}, {True: 1}, {Text("a"): 1}, {Colour.RED: 1}, {"\ud83d": 1}, {("a",): 1}),
    *(Counter("aab"), Items([1, 2]), Lines(a=1), msgspec.UNSET, [], {}),
]


def _containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists: st.SearchStrategy[Any] = st.lists(values, max_size=4)
    objects: st.SearchStrategy[Any] = st.dictionaries(st.text(max_size=3), values, max_size=4)
    counted = objects.map(lambda given: defaultdict[str, Any](int, given))
    return st.one_of(
        lists, lists.map(tuple), lists.map(Items), objects, objects.map(_moved), objects.map(Lines), counted
    )


whatever = st.recursive(json_values | st.sampled_from(_STRANGE), _containers, max_leaves=12)


def _outcome(copy: Callable[[Any, str], Any], value: Any) -> str:
    """The copy with the type of each item, in order, or the message that it is refused with."""
    try:
        return _typed(copy(value, "data"))
    except InvalidValueError as error:
        return f"refused: {error}"


def _typed(value: Any) -> str:
    kind = value.__class__
    if kind is dict:
        return "{" + ",".join(f"{_typed(key)}:{_typed(value[key])}" for key in value) + "}"
    if kind is list:
        return "[" + ",".join(map(_typed, value)) + "]"
    return f"{kind.__name__} {value!r}"


def _in_list(value: Any) -> Any:
    return [1, value]


def _in_object(value: Any) -> Any:
    return {"a": value, "b": 1}


def nested(levels: int) -> Any:
    value: Any = 1
    for number in range(levels):
        value = [value] if number % 2 else {"a": value}
    return value


@given(json_values)
def test_a_json_value_is_copied_as_it_is(value: Any) -> None:
    """The copy is equal in type, value and key order, and is another object (PS-17)."""
    copied = json_copy(value, "data")

    assert json.dumps(value) == json.dumps(copied)
    assert not isinstance(value, list | dict) or value is not copied


@given(whatever, st.integers(0, 1) | st.integers(198, 201))
def test_quick_and_thorough_copies_agree(value: Any, levels: int) -> None:
    """Whatever is given, at whatever depth, is accepted, copied, or refused, as walking over each item does (PS-17)."""
    for _ in range(levels):
        value = [value]

    assert _outcome(walked_json_copy, value) == _outcome(json_copy, value)


@pytest.mark.parametrize("levels", [0, 1, 2, MAX_JSON_DEPTH - 1, MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1])
def test_quick_and_thorough_copies_agree_on_strange_values(levels: int) -> None:
    """So it is with each value that is not quite JSON, in lists and in objects (PS-17)."""
    for wrap in (_in_list, _in_object):
        for strange in _STRANGE:
            value = strange
            for _ in range(levels):
                value = wrap(value)
            assert _outcome(walked_json_copy, value) == _outcome(json_copy, value)


@given(json_values)
def test_nothing_of_a_copy_is_the_callers(value: Any) -> None:
    """Whatever the caller changes afterwards, at any depth, the copy stays (PS-17)."""
    copied = json_copy(value, "data")
    before = json.dumps(copied)
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        kind = item.__class__
        if kind is list or kind is dict:
            pending += item if kind is list else item.values()
            item.clear()

    assert before == json.dumps(copied)


@given(json_values)
def test_a_json_value_comes_back_from_bytes(value: Any) -> None:
    """What is accepted is kept exactly by the stored form, key order included (PS-17)."""
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(json_copy(value, "data")))

    assert json.dumps(value) == json.dumps(stored)


@pytest.mark.parametrize(
    "bad",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        2**64,
        -(2**63) - 1,
        10**30,
        (1, 2),
        {1, 2},
        frozenset({1}),
        b"bytes",
        bytearray(b"x"),
        1j,
        object,
        len,
        "\ud800",
        "a\udfff",
        {1: "a"},
        {None: "a"},
        {True: "a"},
        {b"a": 1},
        {("a",): 1},
        {"\ud83d": 1},
    ],
    ids=repr,
)
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_what_is_no_json_is_refused(bad: Any, levels: int) -> None:
    """NaN, infinities, integers beyond 64 bits, tuples, bytes, lone surrogates and other objects, at any depth (PS-17)."""
    value: Any = {"a": {"b": [None, bad]}} if levels == 2 else [bad] if levels else bad
    with pytest.raises(InvalidValueError, match="data"):
        json_copy(value, "data")


@pytest.mark.parametrize(
    "value", [2**64 - 1, -(2**63), 2**53 + 1, 0, -1, 1e308, 5e-324, "🦜", "\0", "", [], {}, {"": 1}]
)
def test_extremes_are_json(value: Any) -> None:
    """Integers of 64 bits are kept exactly; a pair of surrogates is one character; an empty key is a key (PS-17)."""
    assert json.dumps(value) == json.dumps(json_copy(value, "data"))


@pytest.mark.parametrize(
    ("value", "plain"),
    [(Level.HIGH, 3), (Text("a"), "a"), (Colour.RED, "red"), ([Colour.RED], ["red"]), ({Colour.RED: 1}, {"red": 1})],
    ids=repr,
)
def test_subclasses_become_what_they_equal(value: Any, plain: Any) -> None:
    """A member of an enumeration of texts or numbers is kept as its value: what is read back equals what was written (PS-17)."""
    copied = json_copy(value, "data")

    assert plain == copied
    assert value == copied
    assert type(plain) is type(copied)


def test_depth_has_a_limit() -> None:
    """200 levels are kept, more are refused, and so is a value that contains itself."""
    endless: list[Any] = []
    endless.append(endless)

    assert nested(MAX_JSON_DEPTH) == json_copy(nested(MAX_JSON_DEPTH), "data")
    twice: list[Any] = []
    twice += [twice, {"a": twice}]
    for value in (nested(MAX_JSON_DEPTH + 1), nested(100_000), endless, twice):
        with pytest.raises(InvalidValueError, match="200 levels"):
            json_copy(value, "data")


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        (True, 1, False),
        (False, 0, False),
        (True, True, True),
        (1, 1.0, True),
        (0, -0.0, True),
        (2**53 + 1, float(2**53), False),
        (1, "1", False),
        (None, False, False),
        (None, None, True),
        ("é", "e\u0301", False),
        ([], {}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}, True),
        ({"a": None}, {}, False),
        ({"a": [{"b": True}]}, {"a": [{"b": 1}]}, False),
        ({"a": 1}, [["a", 1]], False),
    ],
)
def test_equality_of_json_values(a: Any, b: Any, is_same: bool) -> None:  # noqa: FBT001 (a column of the table)
    """Key order is ignored, `true` differs from `1`, `1` equals `1.0` (SM-6)."""
    assert is_same == same_json(a, b)
    assert is_same == same_json(b, a)


@given(json_values, json_values)
def test_equality_is_an_equivalence(a: Any, b: Any) -> None:
    """Every value equals its copy, and equality is symmetric and not coarser than that of Python."""
    assert same_json(a, json_copy(a, "data"))
    assert same_json(a, b) == same_json(b, a)
    assert not same_json(a, b) or a == b


@given(ids)
def test_ids_are_kept_as_they_are(text: str) -> None:
    """No normalisation: what is written is what is found (PS-16)."""
    assert text == check_id(text, "id")
    assert text == check_optional_id(text, "id")


def test_empty_ids() -> None:
    """Empty is refused, unless the rule says otherwise; None is an optional id."""
    assert check_id("", "user_id", empty=True) == ""
    assert check_optional_id(None, "id") is None
    for check in (check_id, check_optional_id):
        with pytest.raises(InvalidValueError, match="must not be empty"):
            check("", "id")


@pytest.mark.parametrize("bad", [-1, 1.0, True, False, None, "1", float("nan")])
def test_counts_are_whole_numbers(bad: Any) -> None:
    """Negative numbers, booleans and floats are no counts (PS-11)."""
    assert check_count(0, "limit") == 0
    with pytest.raises(InvalidValueError, match="limit"):
        check_count(bad, "limit")


@pytest.mark.parametrize("bad", [2**63, -(2**63) - 1, 1.0, True, None, "now"])
def test_times_are_milliseconds(bad: Any) -> None:
    """Times are integers of 64 bits with a sign (PS-18)."""
    for good in (-(2**63), 0, 2**63 - 1):
        assert good == check_time(good, "created_at")
    with pytest.raises(InvalidValueError, match="created_at"):
        check_time(bad, "created_at")


@pytest.mark.parametrize("bad", ["a", [("a", 1)], 5, True])
def test_metadata_are_objects(bad: Any) -> None:
    """None is no metadata; anything but an object is refused."""
    assert check_metadata(None) is None
    assert {} == check_metadata({})
    with pytest.raises(InvalidValueError, match="metadata"):
        check_metadata(bad)
