"""Markdown (CE-49 to CE-53)."""

from typing import Any

import pytest
from hypothesis import given
from tests.support.fragment_trees import fragment_lists, leaf_texts, nested

from chatledger.domain.context.builders import glossary
from chatledger.domain.context.fragments import Fragment, fragment
from chatledger.domain.render.prepared import Named, Value, prepare
from chatledger.domain.render.words import title
from chatledger.renderers import MarkdownRenderer

NOTHING: list[Any] = []
EMPTY: dict[str, Any] = {}


def hint(text: Any = "x") -> Fragment:
    return Fragment("hint", text)


def lines(*expected: str) -> str:
    return "\n".join(expected)


def markdown(*fragments: Any, grouped: bool = False) -> str:
    return MarkdownRenderer(group_fragments=grouped).render(fragments)


def test_the_example_of_the_requirements() -> None:
    plan = Fragment("plan", {"title": "Trip", "days": [{"n": 1}, {"n": 2}], "tip": hint("pack")})

    assert (
        lines("## Plan", "- **title**: Trip", "- **days**:", "  - **n**: 1", "  - **n**: 2", "- **hint**: pack")
    ) == markdown(plan)


def test_a_glossary_is_readable() -> None:
    """CE acceptance 9 (the source prints object placeholders)."""
    expected = lines("## Glossary", "- **term**: LTV", "- **expression**: Lifetime Value")

    assert expected == markdown(glossary({"LTV": "Lifetime Value"}))
    assert expected == markdown(Fragment("glossary", [{"term": "LTV", "expression": "Lifetime Value"}]))


def test_fragments_have_a_heading_each_and_an_empty_line_between() -> None:
    """CE-49; what vanishes has none (CE-36)."""
    expected = lines("## Style Guide", "tabs", "", "## A B", "1", "", "## User Api Key", "5")

    assert expected == markdown(
        Fragment("style_guide", "tabs"), Fragment("gone", None), Fragment("a_b", 1.0), Fragment("userAPIKey", 5)
    )


@pytest.mark.parametrize(
    ("data", "body"),
    [
        ("as *is* <b>\n\n# so", "as *is* <b>\n\n# so"),
        ("", ""),
        (1e21, "1e+21"),
        (False, "false"),
        (EMPTY, ""),
        (NOTHING, ""),
        ([None], ""),
    ],
)
def test_the_body_of_scalars_and_of_nothing(data: Any, body: str) -> None:
    """CE-50: not escaped, line breaks kept; an empty container has the heading and an empty line."""
    assert f"## N\n{body}" == markdown(Fragment("n", data))
    assert f"## N\n{body}\n\n## Hint\nx" == markdown(Fragment("n", data), hint())


@pytest.mark.parametrize(
    ("data", "body"),
    [
        ({"z": 1, "a b": "x\ny"}, ["- **z**: 1", "- **a b**: x", "y"]),
        ({"o": {"k": {"l": 2}}}, ["- **o**:", "  - **k**:", "    - **l**: 2"]),
        ({"tags": ["a", {"k": 1, "l": 2}, hint()]}, ["- **tags**:", "  - a", "  - **k**: 1", "  - **l**: 2", "  - **hint**: x"]),
        ({"key": hint()}, ["- **hint**: x"]),
        ({"key": fragment("f", hint(), "a")}, ["- **f**:", "  - **hint**: x", "  - a"]),
        ({"key": Fragment("f", Fragment("g", {"k": 1}))}, ["- **f**:", "  - **g**:", "    - **k**: 1"]),
        ({"e": EMPTY, "l": NOTHING, "z": 1}, ["- **e**:", "", "- **l**:", "- **z**: 1"]),
        ({"key": Fragment("f", EMPTY), "z": Fragment("g", NOTHING)}, ["- **f**:", "", "- **g**:"]),
        ({"gone": None, "kept": ""}, ["- **kept**: "]),
        ([hint(), "a", {"k": 1, "l": {"m": 2}}, hint("y"), 5], ["- a", "- **k**: 1", "- **l**:", "  - **m**: 2", "- 5", "- **hint**: x", "- **hint**: y"]),
        (hint(), ["- **hint**: x"]),
        ([fragment("f", hint(), "a")], ["- **f**:", "  - **hint**: x", "  - a"]),
        ([[1, "a", True], "z"], ["- 1,a,true", "- z"]),
        ([[1, {"k": 2}], [hint(), [3, 4]]], ["-", "  - 1", "  - **k**: 2", "-", "  - **hint**: x", "  - 3,4"]),
        ([EMPTY, "a"], ["- a"]),
        ([{"list": [[1, 2]]}], ["- **list**:", "  - 1,2"]),
    ],
)  # fmt: skip
def test_objects_and_lists(data: Any, body: list[str]) -> None:
    """CE-51, CE-52: items before fragments at the top, in their order elsewhere; lists in lists."""
    assert lines("## N", *body) == markdown(Fragment("n", data))


def test_groups() -> None:
    """CE-53: at the top level only, after the other items, by name in order of first appearance."""
    policy = fragment("style_guide", hint("3"), hint("4"))
    expected = lines(
        "## N", "- a", "- **Hints**:", "  - **hint**: 1", "  - **hint**: 2",
        "- **Style Guides**:", "  - **style_guide**:", "    - **hint**: 3", "    - **hint**: 4",
    )  # fmt: skip

    assert expected == markdown(fragment("n", hint("1"), policy, "a", hint("2")), grouped=True)


def test_only_lists_are_grouped() -> None:
    """Neither the top-level list nor objects."""
    expected = lines("## N", "- **hint**: 1", "- **list**:", "  - **hint**: 2", "  - **hint**: 3", "", "## Hint", "4")

    assert expected == markdown(
        Fragment("n", {"key": hint("1"), "list": [hint("2"), hint("3")]}), hint("4"), grouped=True
    )


@given(fragment_lists)
def test_every_text_is_in_the_output(fragments: list[Any]) -> None:
    """Each fragment has its heading, and below it each of its texts at the end of a line, unchanged and in order."""
    for given_fragment, named in zip(_kept(fragments), prepare(fragments), strict=True):
        heading, _, body = markdown(given_fragment).partition("\n")
        assert heading == f"## {title(named.name)}"

        place = 0
        for text in leaf_texts(_in_order(named.value)):
            place = f"{body}\n".index(f"{text}\n", place) + len(text)


def _kept(fragments: list[Any]) -> list[Any]:
    return [each for each in fragments if prepare([each])]


def _in_order(value: Value) -> Value:
    """The data of a top-level fragment, with the fragments of a list last."""
    return sorted(value, key=lambda item: isinstance(item, Named)) if isinstance(value, list) else value


@pytest.mark.parametrize("grouped", [False, True])
def test_three_thousand_levels(grouped: bool) -> None:  # noqa: FBT001 - a case, not a switch
    """The interpreter's stack ends at 1,000. Lists hold one item each, which is not shown as a level of its own."""
    text = markdown(nested(3000, "found"), grouped=grouped)

    assert text.startswith("## Outer\n- ")
    assert text.endswith((": found", "- found"))
    assert text.count("- **key**:") == text.count("- **inner**:") == 1000
