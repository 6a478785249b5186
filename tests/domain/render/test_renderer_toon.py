"""CE-55 and acceptance 7 and 8 of CE: what a TOON decoder reads back, and in which form it is written."""

import math
from typing import Any, cast

import pytest
import toon_format
from hypothesis import example, given
from tests.support.fragment_trees import fragment_lists
from tests.support.rendered_data import is_same, specified_data

from chatledger.domain.context.fragments import Fragment
from chatledger.domain.render.toml_toon import ToonRenderer
from chatledger.fragments import fragment, hint, term


def rendered(*fragments: Any) -> str:
    return ToonRenderer().render(fragments)


def read(*fragments: Any) -> Any:
    return toon_format.loads(rendered(*fragments))


def finite(value: Any) -> Any:
    """NaN and infinities are null."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [finite(each) for each in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(fragment_lists)
@example([Fragment("a", {"": 1, "a.b": {"'\"": {}}, "é\n": [[], [{}]], "#": "#", "-": "- x", "t": "true"})])
@example([Fragment("a", [[{"x": [{}]}], {}]), Fragment("a", [{"y": {"z": [{"x": {}}]}}, {}])])
@example([Fragment(name, [{"id": "a,b", "n": {"x": 1}}, {"n": {"x": " "}, "id": ""}]) for name in "abb"])
def test_a_decoder_reads_the_specified_data(fragments: list[Any]) -> None:
    """Acceptance 7: any tree of fragments renders to TOON that means what CE-55 says."""
    text = rendered(*fragments)

    assert is_same(finite(specified_data(fragments)), toon_format.loads(text)), text


@pytest.mark.parametrize(
    ("fragments", "lines"),
    [
        pytest.param([], [""], id="nothing"),
        pytest.param([hint("Use UTC")], ["hint: Use UTC"], id="scalar"),
        pytest.param([hint("a"), Fragment("x", 1), hint("b")], ["hint[2]: a,b", "x: 1"], id="repeated name"),
        pytest.param([term("OTA", "agency")], ["term:", "  name: OTA", "  definition: agency"], id="object"),
        pytest.param([Fragment("tags", ["a", "b", "c"])], ["tags[3]: a,b,c"], id="list of scalars"),
        pytest.param(
            [Fragment("users", [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])],
            ["users[2]{id,name}:", "  1,Ada", "  2,Bob"],
            id="table",
        ),
        pytest.param(
            [Fragment("users", [{"id": 1, "name": "Ada"}, {"name": "Bob", "id": 2}])],
            ["users[2]{id,name}:", "  1,Ada", "  2,Bob"],
            id="table, keys in another order",
        ),
        pytest.param(
            [Fragment("users", [{"id": 1, "name": "Ada"}, {"id": 2}])],
            ["users[2]:", "  - id: 1", "    name: Ada", "  - id: 2"],
            id="rows with other keys",
        ),
        pytest.param(
            [fragment("plan", hint("x"), "y", fragment("z", 1))], ["plan[3]:", "  - hint: x", "  - y", "  - z[1]: 1"],
            id="mixed list",
        ),
        pytest.param(
            [fragment("db", hint("x"), fragment("limits", Fragment("rows", 10)))],
            ["db:", "  hint: x", "  limits:", "    rows: 10"],
            id="list of fragments",
        ),
        pytest.param([Fragment("a", {"k": hint("x")})], ["a:", "  hint: x"], id="fragment in an entry"),
        pytest.param([Fragment("a", {}), Fragment("b", [])], ["a:", "b: []"], id="empty containers"),
        pytest.param([Fragment("a", None), Fragment("b", {"c": None})], ["b:"], id="None"),
        pytest.param([Fragment("a b", 1), Fragment("é", 2)], ['"a b": 1', '"é": 2'], id="names to quote"),
        pytest.param(
            [Fragment("a", [[1, 2], [], ["x"]])], ["a[3]:", "  - [2]: 1,2", "  - [0]:", "  - [1]: x"], id="lists in lists"
        ),
    ],
)  # fmt: skip
def test_text(fragments: list[Fragment], lines: list[str]) -> None:
    assert "\n".join(lines) == rendered(*fragments)


@pytest.mark.parametrize(
    "text",
    ["", " a", "a ", "true", "false", "null", "12", "-1.5", "1e9", "05", "+1", "-", "- a", "a:b", 'a"b', "a\\b", "[a]", "{a}",
     "a,b", "a\nb", "a\rb", "a\tb", "\0", "#a"],
)  # fmt: skip
def test_text_is_quoted(text: str) -> None:
    """CE-55: empty, padded, like another value, numeric, with a leading hyphen, or with a character of the syntax."""
    assert rendered(Fragment("x", text)).startswith('x: "')
    assert {"x": text} == read(Fragment("x", text))


@pytest.mark.parametrize("text", ["a b", "True", "1.2.3", "0x1", "a-b", "é", "a|b", "(a)", "\u00a0a", "a'b"])
def test_text_is_bare(text: str) -> None:
    assert f"x: {text}" == rendered(Fragment("x", text))
    assert {"x": text} == read(Fragment("x", text))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (False, "false"), (3, "3"), (3.0, "3"), (-0.0, "0"), (0.5, "0.5"), (1e20, "100000000000000000000"),
        (1e21, "1e+21"), (0.0000001, "1e-7"), (0.000001, "0.000001"), (2.0**60, "1152921504606846976"),
        (float("inf"), "null"), (float("-inf"), "null"), (float("nan"), "null"), (2**64 + 1, "18446744073709551617"),
        ("\ud800", "\ufffd"),
    ],
)  # fmt: skip
def test_scalars(value: Any, text: str) -> None:
    """CE-37, CE-55. A whole float has all its digits, so that it is read back exactly."""
    assert f"x: {text}" == rendered(Fragment("x", value))
