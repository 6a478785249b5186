"""CE-54 and acceptance 7 and 8 of CE: what a TOML parser reads back."""

import sys
import tomllib
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from tests.support.fragment_trees import fragment_lists
from tests.support.rendered_data import is_same, specified_data

from chatledger.domain.context.fragments import Fragment
from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.render.toml_toon import TomlRenderer
from chatledger.fragments import fragment, hint, principle, term

LEVELS = 200


class Codec(msgspec.Struct, frozen=True):
    decoded: Any

    def encode(self) -> Any:
        return {"type": "stored"}

    def decode(self) -> Any:
        return self.decoded


def rendered(*fragments: Any, group_fragments: bool = False) -> str:
    return TomlRenderer(group_fragments=group_fragments).render(fragments)


def read(*fragments: Any) -> dict[str, Any]:
    return tomllib.loads(rendered(*fragments))


@given(fragment_lists)
@example([Fragment("a", {"": 1, "a.b": {"'\"": {}}, "é\n": [[], [{}]]})])
@example([Fragment("a", [[{"x": [{}]}], {}]), Fragment("a", [{"y": {"z": [{"x": {}}]}}, {}])])
def test_a_parser_reads_the_specified_data(fragments: list[Any]) -> None:
    """Acceptance 7: any tree of fragments renders to TOML that means what CE-54 says."""
    text = rendered(*fragments)

    assert is_same(specified_data(fragments), tomllib.loads(text)), text


@given(fragment_lists)
def test_grouping_changes_nothing(fragments: list[Any]) -> None:
    """CE-35: the option is taken; names that repeat are grouped without it."""
    assert rendered(*fragments) == rendered(*fragments, group_fragments=True)


@pytest.mark.parametrize(
    ("fragments", "text"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param([hint("Use UTC")], 'hint = "Use UTC"', id="scalar"),
        pytest.param([hint("a"), hint("b")], 'hint = [\n  "a",\n  "b",\n]', id="repeated name"),
        pytest.param([term("OTA", "agency")], '[term]\nname = "OTA"\ndefinition = "agency"', id="object"),
        pytest.param([Fragment("a", {"b": {"c": 1}})], "[a.b]\nc = 1", id="nested tables"),
        pytest.param(
            [fragment("db", hint("x"), hint("y"), fragment("limits", Fragment("rows", 10)))],
            '[db]\nhint = [\n  "x",\n  "y",\n]\n\n[db.limits]\nrows = 10',
            id="list of fragments",
        ),
        pytest.param(
            [Fragment("cities", ["Riga", "Oslo"])], 'cities = [\n  "Riga",\n  "Oslo",\n]', id="list of scalars"
        ),
        pytest.param([fragment("plan", hint("x"), "y")], 'plan = [\n  { hint = "x" },\n  "y",\n]', id="mixed list"),
        pytest.param(
            [Fragment("users", [{"id": 1}, {"id": 2}])],
            "users = [\n  { id = 1 },\n  { id = 2 },\n]",
            id="list of objects",
        ),
        pytest.param(
            [Fragment("users", [{"id": "x" * 100}, {"id": 2}])],
            f'[[users]]\nid = "{"x" * 100}"\n\n[[users]]\nid = 2',
            id="list of long objects",
        ),
        pytest.param([Fragment("a", {"b": 1}), Fragment("c", 2)], "c = 2\n\n[a]\nb = 1", id="scalar after a table"),
        pytest.param([Fragment("a", {}), Fragment("b", [])], "b = []\n\n[a]", id="empty containers"),
        pytest.param([Fragment("a", None), Fragment("b", {"c": None})], "[b]", id="None"),
        pytest.param([Fragment("a", {"k": hint("x")})], '[a]\nhint = "x"', id="fragment in an entry"),
        pytest.param(
            [Fragment("a", {"hint": 1, "k": hint("x")})], '[a]\nhint = [\n  1,\n  "x",\n]', id="its name is a key too"
        ),
        pytest.param([Fragment("a.b", 1), Fragment("c d", {})], '"a.b" = 1\n\n["c d"]', id="names with dots, blanks"),
        pytest.param([Fragment("a", [[], [{}]])], "a = [\n  [],\n  [\n    {},\n  ],\n]", id="lists in lists"),
    ],
)
def test_text(fragments: list[Fragment], text: str) -> None:
    assert text == rendered(*fragments)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (False, "false"), (3, "3"), (3.0, "3"), (-0.0, "0"), (0.5, "0.5"), (1e21, "1e+21"),
        (0.0000001, "1e-7"), (float("inf"), "inf"), (float("-inf"), "-inf"), (float("nan"), "nan"),
        (2.0**53, "9007199254740992"), (2.0**60, "1152921504606847000.0"), (2**64, "18446744073709551616"),
        ("", '""'), ("a\nb\r\n\t", r'"a\nb\r\n' + '\t"'), ("\0\x1b\x7f", r'"\u0000\u001b\u007f"'), ('"\\', r'"\"\\"'),
        ("\ud800", '"\ufffd"'), ("'''", "\"'''\""), ("# no comment", '"# no comment"'),
    ],
)  # fmt: skip
def test_scalars(value: Any, text: str) -> None:
    """CE-37: numbers as in ECMAScript. A whole float that is no exact integer stays a float, so it is read exactly."""
    assert f"x = {text}" == rendered(Fragment("x", value))
    assert is_same("\ufffd" if value == "\ud800" else value, read(Fragment("x", value))["x"])


def test_an_integer_that_no_parser_reads_is_text() -> None:
    """tomllib, as Python itself, takes integers of up to 4,300 digits."""
    assert {"x": 10**4299, "y": "1" + "0" * 4300} == read(Fragment("x", 10**4299), Fragment("y", 10**4300))


def test_line_breaks_and_repeated_keys_are_valid() -> None:
    """CE-54: the source gets this wrong."""
    fragments = [hint('first\nsecond "line"\r'), hint("a"), Fragment("a", [hint("b"), hint("c\n")])]

    assert {"hint": ['first\nsecond "line"\r', "a"], "a": {"hint": ["b", "c\n"]}} == read(*fragments)


def test_plain_items_beside_fragments_are_kept() -> None:
    """CE-54: the source gets this wrong."""
    data = ["before", hint("x"), {"k": 1}, 2, hint("y"), ["deep", hint("z")]]

    expected = ["before", {"hint": "x"}, {"k": 1}, 2, {"hint": "y"}, ["deep", {"hint": "z"}]]
    assert {"a": expected} == read(Fragment("a", data))


def test_codec_objects_do_not_leak() -> None:
    """CE-54: the source gets this wrong. What a codec decodes to is rendered, at every depth."""
    inner = Fragment("inner", "ignored", codec=Codec({"k": [Fragment("x", codec=Codec(1))]}))

    assert {"a": {"inner": {"k": {"x": 1}}}} == read(fragment("a", inner))
    policies = principle("p", "d", policies=["one", hint("two")])
    assert {"title": "p", "description": "d", "policies": ["one", {"hint": "two"}]} == read(policies)["principle"]


def test_a_mapping_with_the_shape_of_a_fragment_is_one() -> None:
    assert {"hint": "x", "a": {"tip": 1}} == read(
        {"name": "hint", "data": "x"}, fragment("a", {"name": "tip", "data": 1})
    )


def test_a_shared_list_appears_twice() -> None:
    """Acceptance 8: the same object side by side is no cycle."""
    shared = ["x", {"k": [1]}]

    assert {"a": {"b": shared, "c": shared}, "d": [shared, shared]} == read(
        Fragment("a", {"b": shared, "c": shared}), Fragment("d", [shared, shared])
    )


def test_a_list_in_itself_is_absent_inside() -> None:
    """Acceptance 8."""
    endless: list[Any] = ["x"]
    endless.append(endless)
    looped: dict[str, Any] = {"k": 1}
    looped["self"] = {"again": looped}

    assert {"a": ["x"], "b": {"k": 1, "self": {}}} == read(Fragment("a", endless), Fragment("b", looped))


def test_the_input_is_not_changed() -> None:
    data = [{"k": None, "list": [None, hint("x")]}]
    rendered(Fragment("a", data))

    assert [{"k": None, "list": [None, hint("x")]}] == data


@pytest.mark.parametrize("form", ["lists", "objects", "fragments"])
def test_deep_values_are_read_back(form: str) -> None:
    """CE-36: as deep as a JSON value may be."""
    deep: Any = "end"
    expected: Any = "end"
    for _ in range(LEVELS):
        deep = [deep] if form == "lists" else {"k": deep} if form == "objects" else Fragment("k", deep)
        expected = [expected] if form == "lists" else {"k": expected}

    assert {"a": expected} == read(Fragment("a", deep))
    with pytest.raises(InvalidValueError, match="nested more than 200 levels deep"):
        rendered(Fragment("a", [deep, 1]))


def test_deep_values_of_a_caller_deep_in_calls_are_refused() -> None:
    """The library calls itself for each level; it is an error of ours when that is too much."""
    deep: Any = "end"
    for _ in range(LEVELS):
        deep = [deep]

    def called(times: int) -> str:
        return called(times - 1) if times else rendered(Fragment("a", deep))

    with pytest.raises(InvalidValueError, match="nested too deeply"):
        called(sys.getrecursionlimit() * 7 // 10)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'chatledger\[toml\]'"):
        rendered(hint("x"))
