"""TOML and TOON, which libraries write (CE-35, CE-36, CE-54, CE-55)."""

import sys
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import toon_format
from hypothesis import given
from tests.support.fragment_trees import fragment_lists

from chatledger.domain.context.fragments import Fragment
from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.fragments import hint
from chatledger.renderers import Renderer, TomlRenderer, ToonRenderer

LEVELS = 200

each_renderer = pytest.mark.parametrize("renderer", [TomlRenderer(), ToonRenderer()], ids=["toml", "toon"])
each_format = pytest.mark.parametrize(
    ("renderer", "read"), [(TomlRenderer(), tomllib.loads), (ToonRenderer(), toon_format.loads)], ids=["toml", "toon"]
)

Read = Callable[[str], Any]


@each_renderer
@given(fragments=fragment_lists)
def test_grouping_changes_nothing(renderer: Renderer, fragments: list[Any]) -> None:
    """CE-35: the option is taken; names that repeat are grouped without it."""
    assert renderer.render(fragments) == type(renderer)(group_fragments=True).render(fragments)


@each_format
def test_an_integer_that_nobody_reads_is_text(renderer: Renderer, read: Read) -> None:
    """Parsers, as Python itself, take integers of up to 4,300 digits."""
    fragments = [Fragment("x", 10**4299), Fragment("y", 10**4300)]

    assert {"x": 10**4299, "y": "1" + "0" * 4300} == read(renderer.render(fragments))


@each_format
@pytest.mark.parametrize("form", ["lists", "objects", "fragments", "lists of objects"])
def test_deep_values_are_read_back(renderer: Renderer, read: Read, form: str) -> None:
    """CE-36: as deep as a JSON value may be."""
    deep: Any = "end"
    expected: Any = "end"
    for level in range(LEVELS):
        is_list = form == "lists" or (form == "lists of objects" and level % 2)
        deep = [deep] if is_list else Fragment("k", deep) if form == "fragments" else {"k": deep}
        expected = [expected] if is_list else {"k": expected}

    assert {"a": expected} == read(renderer.render([Fragment("a", deep)]))
    with pytest.raises(InvalidValueError, match="nested more than 200 levels deep"):
        renderer.render([Fragment("a", [deep, 1])])


@each_renderer
def test_deep_values_of_a_caller_deep_in_calls_are_refused(renderer: Renderer) -> None:
    """The library calls itself for each level; it is an error of ours when that is too much."""
    deep: Any = "end"
    for _ in range(LEVELS):
        deep = [deep]

    def called(times: int) -> str:
        return called(times - 1) if times else renderer.render([Fragment("a", deep)])

    with pytest.raises(InvalidValueError, match="nested too deeply"):
        called(sys.getrecursionlimit() * 7 // 10)


@pytest.mark.parametrize(
    ("renderer", "library", "extra"), [(TomlRenderer(), "tomli_w", "toml"), (ToonRenderer(), "toon_format", "toon")]
)
def test_without_the_library(renderer: Renderer, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigurationError, match=rf"pip install 'chatledger\[{extra}\]'"):
        renderer.render([hint("x")])
