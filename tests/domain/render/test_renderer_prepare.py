"""Preparation of fragments for every renderer (CE-36, CE-37)."""

import copy
import math
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fragment_trees import fragment_lists, nested, plain_fragment_lists

from chatledger.domain.context.fragments import Fragment, as_fragment, fragment
from chatledger.domain.context.messages import StoredCodec, last_assistant_message, message_fragment
from chatledger.domain.errors import InvalidValueError, MissingCodecError
from chatledger.domain.render.prepared import Named, prepare, scalar_text
from chatledger.renderers import MarkdownRenderer, Renderer, TomlRenderer, ToonRenderer, XmlRenderer

RENDERERS: list[Renderer] = [XmlRenderer(), MarkdownRenderer(), TomlRenderer(), ToonRenderer()]
each_renderer = pytest.mark.parametrize("renderer", RENDERERS, ids=lambda renderer: type(renderer).__name__)


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    left: str
    right: Any


def value_of(data: Any) -> Any:
    """The prepared data of one fragment."""
    (named,) = prepare([Fragment("data", data)])
    assert named.name == "data"
    return named.value


class Changing:
    """A codec that gives another value each time."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def encode(self) -> Any:
        return None

    def decode(self) -> Any:
        return self.values.pop(0)


class Fresh:
    """A codec that makes a list when it is asked."""

    def __init__(self, item: int) -> None:
        self.item = item

    def encode(self) -> Any:
        return None

    def decode(self) -> Any:
        return [self.item]


@pytest.mark.parametrize(
    ("data", "value"),
    cast(
        "list[tuple[Any, Any]]",
        [
            ("text", "text"),
            ("", ""),
            (True, True),
            (3.0, 3.0),
            ({"a": None, "b": 1}, {"b": 1}),
            ([None, 1, None, [None]], [1, []]),
            ((1, (2, None)), [1, [2]]),
            (Pair("a", None), ["a"]),
            (MappingProxyType({"a": OrderedDict[str, int](b=1)}), {"a": {"b": 1}}),
            ({"k": Fragment("hint", None)}, {}),
            ([Fragment("outer", Fragment("inner", None)), 1], [1]),
            (Fragment("hint", "x"), Named("hint", "x")),
            ([{"name": "hint", "data": "x"}], [{"name": "hint", "data": "x"}]),
            ({"name": "Ada", "data": {"a": 1}, "age": 3}, {"name": "Ada", "data": {"a": 1}, "age": 3}),
            ({"name": "col", "data": None, "type": "int"}, {"name": "col", "type": "int"}),
            ({"name": "film", "codec": "h264"}, {"name": "film", "codec": "h264"}),
            ({"name": "ev", "type": "message", "data": 1}, {"name": "ev", "type": "message", "data": 1}),
            ({"name": "", "data": 1}, {"name": "", "data": 1}),
            ({"name": "hint", "text": "x"}, {"name": "hint", "text": "x"}),
            ({"name": 5, "data": 1}, {"name": 5, "data": 1}),
            ([Color.RED, Level.HIGH], ["red", 3]),
            ("\ud83e\udd9c \ud800", "\ufffd\ufffd \ufffd"),
        ],
    ),
)
def test_data_become_plain_values(data: Any, value: Any) -> None:
    """None is gone, mappings are dicts, tuples lists; fragments keep their name, wherever they stand."""
    expected = [] if value is None else [Named("data", value)]

    assert expected == prepare([Fragment("data", data)])


def test_subclasses_become_what_they_are_subclasses_of() -> None:
    """A writer of TOML or TOON need not know enumerations."""
    assert [str, int] == [type(item) for item in value_of([Color.RED, Level.HIGH])]


def test_a_fragment_without_data_vanishes() -> None:
    assert [Named("kept", "x")] == prepare([Fragment("gone", None), Fragment("kept", "x"), {"name": "n", "data": None}])


def test_the_codec_wins_over_the_data() -> None:
    """`decode()` supplies the data, wherever the fragment stands, and in mappings that are given as fragments too."""
    coded = Fragment("hint", "data", codec=StoredCodec("decoded"))
    mapping = {"name": "hint", "data": "data", "codec": StoredCodec({"a": [coded]})}

    assert [Named("hint", {"a": [Named("hint", "decoded")]})] == prepare([mapping])


def test_a_codec_may_decode_to_nothing() -> None:
    assert [] == prepare([Fragment("hint", "data", codec=StoredCodec(None))])


def test_message_fragments_are_rendered_by_what_they_decode_to() -> None:
    message = message_fragment("user", StoredCodec({"role": "user", "parts": []}), "m1")

    assert value_of([message]) == [Named("user", {"role": "user", "parts": []})]


@pytest.mark.parametrize(
    "lacking", [Fragment("user", "x", type="message"), last_assistant_message("x")], ids=["no", "lazy"]
)
@each_renderer
def test_messages_without_codec_are_refused(renderer: Renderer, lacking: Fragment) -> None:
    with pytest.raises(MissingCodecError):
        renderer.render([fragment("outer", lacking)])


def test_a_value_that_contains_itself_is_dropped_at_the_inner_place() -> None:
    """Lists, objects, fragments by their data, and two that contain each other."""
    items: list[Any] = [1]
    items += [items, 2]
    entries: dict[str, Any] = {"a": 1}
    entries |= {"self": entries, "list": [entries, 5]}
    inner: list[Any] = []
    own = Fragment("own", inner)
    inner += ["x", own, Fragment("other", inner)]
    left: list[Any] = ["left"]
    right: list[Any] = ["right", left]
    left.append(right)

    assert [1, 2] == value_of(items)
    assert {"a": 1, "list": [5]} == value_of(entries)
    assert [Named("own", ["x"])] == prepare([own])
    assert {"left": ["left", ["right"]], "right": ["right", ["left"]]} == value_of({"left": left, "right": right})


def test_what_a_codec_decodes_to_may_contain_the_fragment() -> None:
    coded = Fragment("hint", codec=Changing(["first"]))
    assert isinstance(coded.codec, Changing)
    coded.codec.values[0].append(coded)

    assert [Named("hint", ["first"])] == prepare([coded])


def test_the_same_object_twice_side_by_side_is_kept() -> None:
    """CE acceptance 8 (the source drops the second one as a cycle)."""
    shared = ["x"]
    hint = Fragment("hint", shared)

    assert [["x"], ["x"], [["x"]]] == value_of([shared, shared, [shared]])
    assert {"a": ["x"], "b": ["x"]} == value_of({"a": shared, "b": shared})
    assert [Named("hint", ["x"])] * 2 == prepare([hint, hint])


@each_renderer
def test_shared_values_appear_twice_and_cycles_end(renderer: Renderer) -> None:
    """CE acceptance 8, in every format."""
    shared = ["once", "twice"]
    cycle: list[Any] = ["ring"]
    cycle.append(cycle)

    text = renderer.render([Fragment("plan", {"a": shared, "b": shared, "c": cycle})])

    assert [2, 2, 1] == [text.count(word) for word in ("once", "twice", "ring")]


@given(fragment_lists)
def test_preparing_is_following_each_path_until_it_meets_itself(fragments: list[Any]) -> None:
    """What is kept for a second use is what a walk that keeps nothing finds."""
    assert [named for each in fragments if (named := _walked(each, ())) is not None] == _comparable(prepare(fragments))


def _walked(value: Any, outer: tuple[int, ...]) -> Any:
    """Plainly recursive: a named value is a pair, and floats are compared by their text, for NaN is not NaN."""
    if id(value) in outer:
        return None
    inside = (*outer, id(value))
    if not outer and isinstance(value, dict):
        value = as_fragment(cast("dict[str, Any]", value))
    if isinstance(value, Fragment):
        given_fragment = value
        data = given_fragment.data if given_fragment.codec is None else given_fragment.codec.decode()
        content = _walked(data, inside)
        return None if content is None else (given_fragment.name, content)
    if isinstance(value, list):
        return [item for each in cast("list[Any]", value) if (item := _walked(each, inside)) is not None]
    if isinstance(value, dict):
        return {
            key: item
            for key, each in cast("dict[str, Any]", value).items()
            if (item := _walked(each, inside)) is not None
        }
    if isinstance(value, str):
        return value.replace("\ud800", "\ufffd")
    return repr(value) if isinstance(value, float) else value


def _comparable(value: Any) -> Any:
    if isinstance(value, Named):
        return (value.name, _comparable(value.value))
    if isinstance(value, list):
        return [_comparable(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in cast("dict[str, Any]", value).items()}
    return repr(value) if isinstance(value, float) else value


@given(plain_fragment_lists)
def test_inputs_are_not_changed(fragments: list[Any]) -> None:
    before = copy.deepcopy(fragments)
    for renderer in RENDERERS:
        renderer.render(fragments)

    assert repr(before) == repr(fragments)


@given(fragment_lists)
def test_every_output_can_be_encoded_and_is_the_same_again(fragments: list[Any]) -> None:
    """Whatever the fragments, also where they contain themselves."""
    for renderer in RENDERERS:
        text = renderer.render(fragments)
        assert text.encode().decode() == renderer.render(fragments)


@pytest.mark.soak
def test_any_depth() -> None:
    """50,000 levels: the interpreter's stack ends at 1,000."""
    (named,) = prepare([nested(50_000)])

    levels = 0
    value: Any = named.value
    while not isinstance(value, str):
        value = value.value if isinstance(value, Named) else value[0 if type(value) is list else "key"]
        levels += 1
    assert levels == 50_000


def test_a_cycle_far_below_is_dropped() -> None:
    ring: list[Any] = []
    ring.append(nested(3000, ring))

    assert isinstance(value_of(ring), list)


@pytest.mark.parametrize("is_cyclic", [False, True])
def test_what_is_shared_stays_shared(is_cyclic: bool) -> None:  # noqa: FBT001 - a case, not a switch
    """Each of 200 lists holds the next one ten times: 10**200 leaves, but 201 lists."""
    innermost: list[Any] = ["x"]
    innermost += [innermost] * is_cyclic
    value: Any = innermost
    for _ in range(200):
        value = [value] * 10

    prepared = value_of(value)
    for _ in range(199):
        assert len({id(item) for item in prepared}) == 1
        prepared = prepared[0]
    assert prepared == [["x"]] * 10


def test_objects_that_live_only_for_a_moment_are_told_apart() -> None:
    """What a codec makes is gone once it is prepared, and the next one may have its identity."""
    fragments = (Fragment("hint", codec=Fresh(number)) for number in range(1000))

    assert [[number] for number in range(1000)] == [named.value for named in prepare(fragments)]


@pytest.mark.parametrize(
    ("given_fragments", "message"),
    [
        ([5], r"fragments\[0\] is a int, not a fragment"),
        ([Fragment("a", 1), "b"], r"fragments\[1\] is a str, not a fragment"),
        ([{"title": "x"}], r"fragments\[0\]: expected a fragment, not dict"),
        ([{"name": "a", "data": 1, "age": 2}], r"^fragments\[0\]: .* with the key 'age'"),
        ([Fragment("a", {"k": [1, print]})], r"^a\.k\[1\] is a builtin_function_or_method, which is not a JSON value"),
        ([fragment("a", fragment("b", b"x"))], r"^a\[0\]\.b\[0\] is a bytes"),
        ([Fragment("a", {"k": {1: 2}})], r"^a\.k has a key that is a int; keys must be text"),
        ([Fragment("a", {"\ud800": 2})], "^a has a key with a lone surrogate"),
        ([Fragment("a", {"x" * 100: b"1"})], f"^a.{'x' * 64} is a bytes"),
        ([nested(40, b"1")], r"^\.\.\..{0,99} is a bytes"),
    ],
)
@each_renderer
def test_what_cannot_be_rendered_is_named(renderer: Renderer, given_fragments: list[Any], message: str) -> None:
    """By its path, of which the end is shown; never by its content."""
    with pytest.raises(InvalidValueError, match=message):
        renderer.render(given_fragments)


def test_an_error_of_a_codec_is_its_own() -> None:
    with pytest.raises(IndexError):
        prepare([Fragment("a", codec=Changing())])


@each_renderer
def test_renderers_are_values(renderer: Renderer) -> None:
    """Equal by their options, and immutable."""
    kind: Callable[..., Renderer] = type(renderer)

    assert renderer == kind(group_fragments=False) != kind(group_fragments=True)
    assert hash(renderer) == hash(kind())
    with pytest.raises(AttributeError):
        renderer.group_fragments = True  # type: ignore[misc]  # that it is refused is the point


@each_renderer
def test_nothing_renders_to_nothing(renderer: Renderer) -> None:
    assert not renderer.render([])
    assert not renderer.render([Fragment("gone", None)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as is \n<", "as is \n<"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (3.0, "3"),
        (-0.0, "0"),
        (0, "0"),
        (0.1, "0.1"),
        (-12.5, "-12.5"),
        (100.0, "100"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (-1.5e300, "-1.5e+300"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.000001, "0.000001"),
        (0.0000015, "0.0000015"),
        (0.0000001, "1e-7"),
        (1.23e-7, "1.23e-7"),
        (5e-324, "5e-324"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (10**21, "1000000000000000000000"),
        (-(2**64), "-18446744073709551616"),
    ],
)
def test_scalars_as_in_ecmascript(value: Any, text: str) -> None:
    """CE-37; integers have all their digits."""
    assert text == scalar_text(value)


def test_integers_of_any_size() -> None:
    """Above 4,300 digits, `str` refuses."""
    assert "1" + "0" * 5000 == scalar_text(10**5000)
    assert "-" + "9" * 5000 == scalar_text(1 - 10**5000)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_can_be_read_back(value: float) -> None:
    """With the fewest digits: as many as `repr` has."""
    text = scalar_text(value)

    assert float(text) == value
    assert text != "-0"
    significant = text.lstrip("-").partition("e")[0].replace(".", "").strip("0")
    assert significant == repr(value).lstrip("-").partition("e")[0].replace(".", "").strip("0")
    assert ("e" in text) == (value != 0 and not 1e-6 <= abs(value) < 1e21)
