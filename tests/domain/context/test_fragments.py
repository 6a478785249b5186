"""CE-1 to CE-4: what a fragment is, and what counts as one."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import json_values, texts

from chatledger.domain.context.fragments import (
    Fragment,
    Lazy,
    as_fragment,
    content_of,
    copied,
    fragment,
    is_fragment,
    is_fragment_object,
    is_lazy_fragment,
    is_message_fragment,
    stored_form,
)
from chatledger.domain.context.messages import StoredCodec, last_assistant_message, message_fragment
from chatledger.domain.errors import InvalidValueError, MissingCodecError
from chatledger.fragments import hint

STORED = StoredCodec({"role": "user", "parts": []})


class BothForms(msgspec.Struct, frozen=True):
    """A codec whose two forms differ."""

    def encode(self) -> Any:
        return {"type": "both"}

    def decode(self) -> Any:
        return "from the codec"


def test_a_context_fragment_by_default() -> None:
    """Not stored, without id, codec and metadata (CE-1)."""
    made = Fragment("hint", "Use UTC")

    assert ("hint", "Use UTC") == (made.name, made.data)
    assert ("fragment", False, None, None, {}) == (made.type, made.persist, made.id, made.codec, made.metadata)


def test_metadata_are_of_one_fragment() -> None:
    """Two fragments do not share the default (CE-1)."""
    one, other = Fragment("a", 1), Fragment("b", 2)
    one.metadata["x"] = 1

    assert {} == other.metadata


def test_fragments_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Fragment("a", 1).name = "b"  # type: ignore[misc]


def test_message_fragments_persist_and_have_an_id() -> None:
    """Unless they are lazy (CE-1)."""
    made = message_fragment("user", STORED, "m1")

    assert ("message", True, "m1") == (made.type, made.persist, made.id)
    assert last_assistant_message("fixed").persist
    assert last_assistant_message("fixed").id is None


def test_children_are_the_data() -> None:
    """`fragment(name, *children)`, nested (CE-2)."""
    made = fragment("database", hint("Postgres 17"), fragment("constraints", hint("no nulls"), "x"))

    assert made == Fragment("database", [hint("Postgres 17"), Fragment("constraints", [hint("no nulls"), "x"])])


def test_a_fragment_without_children_has_an_empty_list() -> None:
    assert [] == fragment("database").data


def test_data_nest_without_limit() -> None:
    """CE-2."""
    made = Fragment("leaf", "x")
    for _ in range(50_000):
        made = fragment("level", made)

    assert is_fragment(made)
    assert is_fragment(content_of(made)[0])


@pytest.mark.parametrize("data", [None, "", 0, False, [], {}])
def test_empty_data_are_data(data: Any) -> None:
    """None included (CE-4)."""
    assert data == content_of(Fragment("a", data))


def test_neither_data_nor_codec() -> None:
    """CE-4."""
    with pytest.raises(InvalidValueError, match="fragment 'a' has neither data nor codec"):
        Fragment("a")


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 2049, 5, None])
def test_a_name_must_be_a_name(name: Any) -> None:
    with pytest.raises(InvalidValueError, match="name of a fragment"):
        Fragment(name, 1)


def test_a_codec_wins_over_data() -> None:
    """CE-4."""
    made = Fragment("a", "data", codec=BothForms())

    assert "from the codec" == content_of(made)
    assert {"type": "both"} == stored_form(made)


@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        (Fragment("user", "hello", type="message", id="m1"), r"'user' \(id 'm1'\)"),
        (last_assistant_message("fixed"), "'assistant'"),
    ],
    ids=["data", "lazy"],
)
def test_messages_need_a_codec(lacking: Fragment, named: str) -> None:
    """CE-4: data alone are not enough, neither to render nor to store."""
    for form in (content_of, stored_form):
        with pytest.raises(MissingCodecError, match=named):
            form(lacking)


def test_context_fragments_need_none() -> None:
    """CE-4; only their stored form does."""
    made = Fragment("hint", "x")

    assert "x" == content_of(made)
    with pytest.raises(MissingCodecError):
        stored_form(made)


@pytest.mark.parametrize(
    ("guard", "value", "is_one"),
    [
        (is_fragment, Fragment("a", 1), True),
        (is_fragment, {"name": "a", "data": 1}, False),
        (is_fragment, {"name": "a", "codec": STORED}, False),
        (is_fragment, {"name": "a"}, False),
        (is_fragment, {}, False),
        (is_fragment, [], False),
        (is_fragment, "a", False),
        (is_fragment, None, False),
        (is_fragment_object, {}, True),
        (is_fragment_object, {"name": "a"}, True),
        (is_fragment_object, {"x": 1}, True),
        (is_fragment_object, {1: 2}, True),
        (is_fragment_object, {"name": "a", "data": 1}, True),
        (is_fragment_object, Fragment("a", 1), False),
        (is_fragment_object, [], False),
        (is_fragment_object, "a", False),
        (is_fragment_object, 5, False),
        (is_fragment_object, None, False),
        (is_message_fragment, message_fragment("user", STORED, "m1"), True),
        (is_message_fragment, last_assistant_message("fixed"), True),
        (is_message_fragment, {"name": "user", "type": "message", "codec": STORED}, False),
        (is_message_fragment, {"type": "message"}, False),
        (is_message_fragment, Fragment("user", 1), False),
        (is_message_fragment, {"name": "user", "data": 1}, False),
        (is_message_fragment, "message", False),
        (is_lazy_fragment, last_assistant_message("fixed"), True),
        (is_lazy_fragment, {"name": "assistant", "lazy": Lazy("last-assistant", "fixed")}, False),
        (is_lazy_fragment, Fragment("a", 1), False),
        (is_lazy_fragment, {"lazy": True}, False),
        (is_lazy_fragment, None, False),
    ],
)
def test_guards(guard: Callable[[Any], bool], value: Any, *, is_one: bool) -> None:
    """Only a `Fragment` is one, whatever keys a mapping has (CE-3)."""
    assert is_one is guard(value)


@given(
    json_values
    | st.sampled_from([object(), print, int, Fragment, b"x", {1}, (1,), iter([1]), float("nan")])
    | st.dictionaries(st.sampled_from(["name", "data", "codec", "type", "lazy"]) | texts, json_values)
)
def test_no_guard_raises(value: Any) -> None:
    """On any input (CE-3)."""
    answers = [test(value) for test in (is_fragment, is_fragment_object, is_message_fragment, is_lazy_fragment)]

    assert all(isinstance(answer, bool) for answer in answers)


def test_a_mapping_of_its_fields_becomes_a_fragment() -> None:
    """Where a caller says so (CE-3)."""
    made = as_fragment({"name": "a", "data": [1], "id": "x"})

    assert Fragment("a", [1], id="x") == made
    assert made is as_fragment(made)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "expected a fragment, not NoneType"),
        ("a", "expected a fragment, not str"),
        ([], "expected a fragment, not list"),
        ({}, "expected a fragment, not dict"),
        ({"name": "a"}, "expected a fragment, not dict"),
        ({"name": 5, "data": 1}, "expected a fragment, not dict"),
        ({"name": "Ada", "data": 1, "email": "a@b"}, "not a mapping with the key 'email'"),
        ({"name": "", "data": 1}, "name of a fragment"),
        ({"name": "film", "codec": "h264"}, "codec of fragment 'film' cannot decode"),
    ],
)
def test_other_values_are_refused(value: Any, message: str) -> None:
    """Also mappings of which a part would be lost."""
    with pytest.raises(InvalidValueError, match=message):
        as_fragment(value)


class Point(msgspec.Struct):
    """A struct that can be changed."""

    x: int
    tags: set[str]


def test_a_copy_has_models_and_sets_as_objects_and_lists() -> None:
    """So what the caller does to them later has no effect (CE-18)."""
    point = Point(1, {"b", "a"})
    made = copied(Fragment("a", {"p": point, "again": point}))
    point.x = 2
    point.tags.add("c")

    assert {"p": {"x": 1, "tags": ["a", "b"]}, "again": {"x": 1, "tags": ["a", "b"]}} == made.data
    assert made.data["p"] is made.data["again"]
