"""CE-9: fragments as JSON objects, and back."""

import inspect
import json
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import json_values

from chatledger.domain.context.builders import BUILDERS
from chatledger.domain.context.fragments import Fragment, as_fragment, fragment
from chatledger.domain.context.messages import StoredCodec, last_assistant_message, message_fragment
from chatledger.domain.errors import FragmentConversionError, InvalidValueError
from chatledger.fragments import Conversions, from_fragment, glossary, hint, policy, principle, role, to_fragment

MESSAGE = message_fragment("user", StoredCodec({"role": "user", "parts": []}), "m1")


class TicketCodec(msgspec.Struct, frozen=True):
    """As somebody else would write it."""

    number: int
    notes: list[Any] = []

    def encode(self) -> Any:
        return {"type": "ticket", "number": self.number, "notes": self.notes}

    def decode(self) -> Any:
        return {"number": self.number, "notes": self.notes}


def ticket(number: int, notes: list[Any] | None = None) -> Fragment:
    return Fragment("ticket", codec=TicketCodec(number, notes or []))


WITH_TICKETS = Conversions().extended("ticket", ticket, nested=["notes"])

words = st.text(max_size=5)
_LISTS = {"steps", "triggers", "concepts"}


def _field(name: str, policies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    if name == "policies":
        return st.lists(words | policies, max_size=3)
    if name == "entries":
        return st.dictionaries(words, words, max_size=3)
    either = st.lists(words, max_size=3)
    return either if name in _LISTS else words | either if name in {"never", "always"} else words


def _built(policies: st.SearchStrategy[Any]) -> st.SearchStrategy[Fragment]:
    """Fragments of any builder, with these in their policies."""

    def fields(build: Any) -> st.SearchStrategy[Fragment]:
        parameters = inspect.signature(build).parameters.values()
        required = {each.name: _field(each.name, policies) for each in parameters if each.default is each.empty}
        optional = {each.name: _field(each.name, policies) for each in parameters if each.default is not each.empty}
        return st.fixed_dictionaries(required, optional=optional).map(lambda given: build(**given))

    return st.one_of([fields(build) for build in BUILDERS])


built = st.recursive(_built(st.nothing()), _built, max_leaves=4)


@given(built)
def test_what_builders_make_comes_back(made: Fragment) -> None:
    """Every builder, recursively; the form survives JSON."""
    form = json.loads(json.dumps(from_fragment(made)))

    assert made == to_fragment(form)
    assert form == from_fragment(to_fragment(form))


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_every_builder_is_known(build: Any) -> None:
    """None is left to the luck of the property."""
    lists = {*_LISTS, "policies"}
    fields = {
        name: {"a": "b"} if name == "entries" else ["a"] if name in lists else "a"
        for name in inspect.signature(build).parameters
    }
    form = {"type": build.__name__, **fields}

    assert form == from_fragment(build(**fields))
    assert build(**fields) == to_fragment(form)


def test_a_fragment_in_policies_may_be_one_already() -> None:
    assert policy("r", policies=[hint("x")]) == to_fragment({"type": "policy", "rule": "r", "policies": [hint("x")]})


def test_terms_are_not_mistaken_for_fragments() -> None:
    """A glossary may explain the word `type`."""
    made = glossary({"type": "hint", "text": "x"})

    assert made == to_fragment(from_fragment(made))


@pytest.mark.parametrize("value", [{"type": "hint", "text": "x"}, {"text": "x", "type": "hint"}])
def test_the_argument_is_not_changed(value: dict[str, Any]) -> None:
    before = dict(value)

    assert hint("x") == to_fragment(value)
    assert before == value


def test_a_form_of_ones_own() -> None:
    """What was given does not change with what is done to the form."""
    made = policy("r", policies=["x", hint("y")])
    form = from_fragment(made)
    form["policies"].clear()

    assert ["x", {"type": "hint", "text": "y"}] == from_fragment(made)["policies"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "nope", "text": "x"}, "unknown type 'nope'"),
        ({"type": "styleGuide", "prefer": "x"}, "unknown type 'styleGuide'"),
        ({"type": "ticket", "number": 5}, "unknown type 'ticket'"),
        ({"type": 5}, "expected an object with a text `type`"),
        ({"text": "x"}, "expected an object with a text `type`"),
        ({}, "expected an object with a text `type`"),
        ([], "not list"),
        ("hint", "not str"),
        (None, "not NoneType"),
        (hint("x"), "not Fragment"),
        ({"type": "hint"}, "missing a required argument: 'text'"),
        ({"type": "hint", "text": "x", "tone": "y"}, "unexpected keyword argument 'tone'"),
        ({"type": "hint", "text": "x", 5: "y"}, "the fields of type 'hint' do not fit"),
        ({"type": "hint", "text": 5}, "text of hint\\(\\) must be text, not int"),
        ({"type": "principle", "title": "t", "description": "d", "policies": "x"}, "policies of principle"),
        ({"type": "policy", "rule": "r", "policies": [{"type": "nope"}]}, "unknown type 'nope'"),
        ({"type": "policy", "rule": "r", "policies": [{"text": "x"}]}, "expected an object with a text `type`"),
        ({"type": "policy", "rule": "r", "policies": [5]}, "policies\\[0\\] of policy"),
        ({"type": "policy", "rule": "r", "policies": {"type": "hint", "text": "x"}}, "policies of policy"),
        ({"type": "policy", "rule": "r", "policies": [{"type": "policy"}]}, "missing a required argument: 'rule'"),
    ],
    ids=range(20),
)
def test_forms_of_no_fragment(value: Any, message: str) -> None:
    with pytest.raises(FragmentConversionError, match=message):
        to_fragment(value)


@given(json_values | st.dictionaries(st.just("type") | words, st.sampled_from(["hint", "policy"]) | json_values))
def test_no_value_breaks_it(value: Any) -> None:
    """A fragment or an error of ours."""
    try:
        made = to_fragment(value)
    except FragmentConversionError:
        return
    assert value["type"] == made.name


class Given(msgspec.Struct, frozen=True):
    """A codec that encodes to what it is told to."""

    form: Any

    def encode(self) -> Any:
        return self.form

    def decode(self) -> Any:
        return "x"


class Broken(msgspec.Struct, frozen=True):
    """A codec with a mistake in it."""

    def encode(self) -> Any:
        msg = "secret"
        raise KeyError(msg)

    def decode(self) -> Any:
        return "x"


def _deep() -> Any:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    return value


def _cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (fragment("database", "x"), "unknown fragment name 'database'"),
        (Fragment("styleGuide", codec=Given({"type": "style_guide", "prefer": "x"})), "unknown fragment name"),
        (MESSAGE, "'user' is a message"),
        (last_assistant_message("fixed"), "'assistant' is a message"),
        (Fragment("hint", "x"), "'hint' has no codec"),
        (Fragment("hint", codec=Given(None)), "encodes to no object with a text `type`"),
        (Fragment("hint", codec=Given("x")), "encodes to no object with a text `type`"),
        (Fragment("hint", codec=Given(["type"])), "encodes to no object with a text `type`"),
        (Fragment("hint", codec=Given({"text": "x"})), "encodes to no object with a text `type`"),
        (Fragment("hint", codec=Given({"type": 5})), "encodes to no object with a text `type`"),
        (Fragment("hint", codec=Given(hint("x"))), "encodes to no object with a text `type`"),
        (Fragment("hint", codec=Given({"type": "nope"})), "unknown type 'nope'"),
        (Fragment("hint", codec=Given({"type": "hint", "text": {1}})), "contains a set"),
        (Fragment("hint", codec=Given({"type": "hint", "text": float("nan")})), "contains nan"),
        (Fragment("hint", codec=Given({"type": "hint", 5: "x"})), "has the key 5"),
        (Fragment("hint", codec=Given({"type": "hint", "text": _deep()})), "more than 200 levels deep"),
        (Fragment("hint", codec=Given({"type": "hint", "text": _cyclic()})), "more than 200 levels deep"),
        (Fragment("hint", codec=Broken()), "the codec of fragment 'hint' failed to encode: KeyError"),
        (hint("\ud800"), "lone surrogate"),
        (policy("r", policies=[fragment("plain", "x")]), "unknown fragment name 'plain'"),
        (policy("r", policies=[Fragment("hint", "x")]), "'hint' has no codec"),
        (policy("r", policies=[policy("s", policies=[MESSAGE])]), "'user' is a message"),
        ("hint", "expected a fragment, not str"),
        (None, "expected a fragment, not NoneType"),
        ({"type": "hint"}, "expected a fragment, not dict"),
        ({"name": "", "data": 1}, "name of a fragment must not be empty"),
    ],
    ids=range(26),
)
def test_fragments_without_a_form(value: Any, message: str) -> None:
    with pytest.raises(FragmentConversionError, match=message):
        from_fragment(value)


def test_what_was_raised_is_chained_and_not_repeated() -> None:
    """Messages of errors name no content."""
    with pytest.raises(FragmentConversionError) as raised:
        from_fragment(Fragment("hint", codec=Broken()))

    assert isinstance(raised.value.__cause__, KeyError)
    assert "secret" not in str(raised.value)


def test_a_fragment_that_no_builder_made_has_no_serialized_form() -> None:
    with pytest.raises(FragmentConversionError, match=r"fragment 'hint' has no codec.*make it by a builder"):
        from_fragment(Fragment("hint", "x"))
    with pytest.raises(FragmentConversionError, match="fragment 'hint' has no codec"):
        from_fragment(principle("title", "description", policies=[Fragment("hint", "x")]))


def test_a_mapping_of_the_shape_is_a_fragment() -> None:
    shaped = {"name": "hint", "codec": hint("x").codec}

    assert hint("x") == Fragment("hint", "x", codec=as_fragment(shaped).codec)
    assert {"type": "hint", "text": "x"} == from_fragment(shaped)  # type: ignore[arg-type]


def _nested_form(levels: int) -> dict[str, Any]:
    form: dict[str, Any] = {"type": "policy", "rule": "r"}
    for _ in range(levels):
        form = {"type": "policy", "rule": "r", "policies": [form, "x"]}
    return form


def test_depth_is_bounded_alike_in_both_directions() -> None:
    """A form that can be read can be written, and nothing is too deep for the interpreter."""
    form = _nested_form(99)

    assert form == from_fragment(to_fragment(form))
    with pytest.raises(FragmentConversionError, match="more than 200 levels deep"):
        to_fragment(_nested_form(100))
    with pytest.raises(FragmentConversionError, match="more than 200 levels deep"):
        from_fragment(policy("r", policies=[to_fragment(form)]))


@pytest.mark.parametrize("inside", ["policies", "rule"])
def test_hostile_depth(inside: str) -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = [value] if inside == "rule" else {"type": "policy", "rule": "r", "policies": [value]}

    with pytest.raises(FragmentConversionError):
        to_fragment({"type": "policy", "rule": "r", inside: value})


def test_custom_types() -> None:
    """A registry for other fragments; those in its nested fields are converted too."""
    made = ticket(7, [hint("x"), "y", policy("r", policies=[ticket(8)])])
    form: dict[str, Any] = {
        "type": "ticket",
        "number": 7,
        "notes": [
            {"type": "hint", "text": "x"},
            "y",
            {"type": "policy", "rule": "r", "policies": [{"type": "ticket", "number": 8, "notes": []}]},
        ],
    }

    assert form == WITH_TICKETS.from_fragment(made)
    assert made == WITH_TICKETS.to_fragment(form)


def test_objects_in_other_fields_stay_objects() -> None:
    """Only nested fields hold fragments: a `type` in data is no promise."""
    plain = Conversions().extended("ticket", ticket)
    form = {"type": "ticket", "number": 7, "notes": [{"type": "string"}, {"type": "hint", "text": "x"}]}

    assert ticket(7, [{"type": "string"}, {"type": "hint", "text": "x"}]) == plain.to_fragment(form)
    assert form == plain.from_fragment(plain.to_fragment(form))


def _bug(text: str) -> Fragment:
    return Fragment("bug", codec=Given({"type": "bug", "text": text}))


def test_extending_changes_nothing_else() -> None:
    """Conversions are values: whoever has others does not notice."""
    first = Conversions()
    second = first.extended("ticket", ticket)
    third = second.extended("bug", _bug)

    assert {"type": "bug", "text": "x"} == third.from_fragment(third.to_fragment({"type": "bug", "text": "x"}))
    assert ticket(1) == third.to_fragment({"type": "ticket", "number": 1})
    for conversions, name in [(first, "ticket"), (second, "bug"), (Conversions(), "ticket")]:
        with pytest.raises(FragmentConversionError, match=f"unknown type '{name}'"):
            conversions.to_fragment({"type": name})


@pytest.mark.parametrize("name", ["hint", "ticket", "", None])
def test_a_name_must_be_free(name: Any) -> None:
    with pytest.raises(InvalidValueError):
        WITH_TICKETS.extended(name, ticket)


def _refusing(**fields: Any) -> Fragment:
    msg = "secret"
    raise RuntimeError(msg, fields)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Fragment("other", "x"), "made no context fragment of that name"),
        (lambda: "x", "made no context fragment of that name"),
        (lambda: message_fragment("custom", StoredCodec({}), "m1"), "made no context fragment of that name"),
        (_refusing, "its builder failed with RuntimeError"),
    ],
    ids=range(4),
)
def test_builders_with_mistakes(build: Any, message: str) -> None:
    with pytest.raises(FragmentConversionError, match=message):
        Conversions().extended("custom", build).to_fragment({"type": "custom"})


def test_any_mapping_will_do() -> None:
    assert role("x") == to_fragment(MappingProxyType({"type": "role", "content": "x"}))
