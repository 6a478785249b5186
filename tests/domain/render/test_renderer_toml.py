"""CE-54 and acceptance 7 and 8 of CE: what a TOML parser reads back."""

import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from tests.support.fragment_trees import fragment_lists
from tests.support.rendered_data import is_same, specified_data

from chatledger.domain.context.fragments import Fragment
from chatledger.domain.render.toml_toon import TomlRenderer
from chatledger.fragments import fragment, hint, term

LEVELS = 200


def rendered(*fragments: Any) -> str:
    return TomlRenderer().render(fragments)


def read(*fragments: Any) -> dict[str, Any]:
    return tomllib.loads(rendered(*fragments))


@given(fragment_lists)
@example([Fragment("a", {"": 1, "a.b": {"'\"": {}}, "é\n": [[], [{}]]})])
@example([Fragment("a", [[{"x": [{}]}], {}]), Fragment("a", [{"y": {"z": [{"x": {}}]}}, {}])])
def test_a_parser_reads_the_specified_data(fragments: list[Any]) -> None:
    """Acceptance 7: any tree of fragments renders to TOML that means what CE-54 says."""
    text = rendered(*fragments)

    assert is_same(specified_data(fragments), tomllib.loads(text)), text


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
