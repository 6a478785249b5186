"""CE-7 and CE-8: every builder, its fields, and both of its forms."""

import copy
import inspect
import pickle
from collections import UserList
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple

import pytest
from tests.support.cases import case

from chatledger import fragments
from chatledger.domain.context.builders import BUILDERS
from chatledger.domain.context.fragments import Fragment, content_of, fragment, stored_form
from chatledger.domain.errors import FragmentConversionError, InvalidValueError, MissingCodecError
from chatledger.fragments import (
    alias,
    analogy,
    clarification,
    correction,
    example,
    explain,
    glossary,
    guardrail,
    hint,
    identity,
    persona,
    policy,
    preference,
    principle,
    quirk,
    role,
    style_guide,
    term,
    to_fragment,
    workflow,
)

Make = Callable[..., Fragment]


class Built(NamedTuple):
    """A fragment, and the fields that it must have."""

    made: Fragment
    fields: dict[str, Any]


OBJECTS = {
    "term": Built(term("OTA", "travel agency"), {"name": "OTA", "definition": "travel agency"}),
    "guardrail": Built(guardrail("No PII"), {"rule": "No PII"}),
    "guardrail, full": Built(
        guardrail("No PII", reason="law", action="aggregate"),
        {"rule": "No PII", "reason": "law", "action": "aggregate"},
    ),
    "explain": Built(explain("churn", "a leak"), {"concept": "churn", "explanation": "a leak"}),
    "explain, full": Built(
        explain("churn", "a leak", therefore="mend"), {"concept": "churn", "explanation": "a leak", "therefore": "mend"}
    ),
    "example": Built(example("How many?", "5"), {"question": "How many?", "answer": "5"}),
    "example, full": Built(
        example("How many?", "5", note="late"), {"question": "How many?", "answer": "5", "note": "late"}
    ),
    "clarification": Built(
        clarification("rate", "which?", "many"), {"when": "rate", "ask": "which?", "reason": "many"}
    ),
    "workflow": Built(workflow("plan", ["a", "b"]), {"task": "plan", "steps": ["a", "b"]}),
    "workflow, full": Built(
        workflow("plan", ["a"], triggers=["trip"], notes="slow"),
        {"task": "plan", "steps": ["a"], "triggers": ["trip"], "notes": "slow"},
    ),
    "quirk": Built(quirk("zeros", "pad"), {"issue": "zeros", "workaround": "pad"}),
    "style_guide": Built(style_guide("tables"), {"prefer": "tables"}),
    "style_guide, full": Built(
        style_guide("tables", never="jargon", always=["units", "sources"]),
        {"prefer": "tables", "never": "jargon", "always": ["units", "sources"]},
    ),
    "analogy": Built(analogy(["a", "b"], "like"), {"concepts": ["a", "b"], "relationship": "like"}),
    "analogy, full": Built(
        analogy(["a"], "like", insight="i", therefore="t", pitfall="p"),
        {"concepts": ["a"], "relationship": "like", "insight": "i", "therefore": "t", "pitfall": "p"},
    ),
    "principle": Built(principle("Care", "be kind"), {"title": "Care", "description": "be kind"}),
    "principle, full": Built(
        principle("Care", "be kind", policies=["listen"]),
        {"title": "Care", "description": "be kind", "policies": ["listen"]},
    ),
    "policy": Built(policy("ask"), {"rule": "ask"}),
    "policy, full": Built(
        policy("ask", before="booking", reason="cost", policies=["sum"]),
        {"rule": "ask", "before": "booking", "reason": "cost", "policies": ["sum"]},
    ),
    "identity": Built(identity(), {}),
    "identity, full": Built(identity(name="Ada", role="analyst"), {"name": "Ada", "role": "analyst"}),
    "persona": Built(persona("Guide"), {"name": "Guide"}),
    "persona, full": Built(
        persona("Guide", role="planner", objective="trips", tone="warm"),
        {"name": "Guide", "role": "planner", "objective": "trips", "tone": "warm"},
    ),
    "alias": Built(alias("the big one", "orders"), {"term": "the big one", "meaning": "orders"}),
    "preference": Built(preference("units", "metric"), {"aspect": "units", "value": "metric"}),
    "correction": Built(correction("Riga", "in Latvia"), {"subject": "Riga", "clarification": "in Latvia"}),
}


@pytest.mark.parametrize("case", OBJECTS)
def test_objects(case: str) -> None:
    """The data are the fields in their order; the stored form has the name of the builder first (CE-7, CE-8)."""
    made, fields = OBJECTS[case]
    name = case.partition(",")[0]

    assert (name, "fragment", False, None, fields) == (made.name, made.type, made.persist, made.id, made.data)
    assert made.codec is not None
    assert list(fields.items()) == list(made.codec.decode().items())
    assert [("type", name), *fields.items()] == list(made.codec.encode().items())


@pytest.mark.parametrize(("make", "field"), [(hint, "text"), (role, "content")], ids=["hint", "role"])
def test_texts(make: Make, field: str) -> None:
    """The data of `hint` and `role` are the text (CE-7)."""
    made = make("Use UTC")

    assert "Use UTC" == content_of(made)
    assert {"type": made.name, field: "Use UTC"} == stored_form(made)


def test_glossary() -> None:
    """A mapping, whose data are a list of terms and expressions (CE-7)."""
    made = glossary({"LTV": "Lifetime Value", "AOV": "sum / count"})

    assert [
        {"term": "LTV", "expression": "Lifetime Value"},
        {"term": "AOV", "expression": "sum / count"},
    ] == content_of(made)
    assert {"type": "glossary", "entries": {"LTV": "Lifetime Value", "AOV": "sum / count"}} == stored_form(made)


def test_a_glossary_takes_the_form_of_its_data() -> None:
    """CE-8, and the same in its serialized form."""
    entries = {"LTV": "Lifetime Value", "AOV": "sum / count"}
    made = glossary(entries)

    assert made == glossary(made.data) == to_fragment({"type": "glossary", "entries": made.data})


def test_the_table_is_complete() -> None:
    """CE-8."""
    named = {case.partition(",")[0] for case in OBJECTS} | {"hint", "role", "glossary"}

    assert named == {build.__name__ for build in BUILDERS}
    assert len(BUILDERS) == 19
    assert {build.__name__ for build in BUILDERS} <= set(fragments.__all__)


def _arguments(build: Make) -> Iterator[tuple[str, bool, Any]]:
    """Each parameter of a builder: its name, whether it is optional, and a value that it takes."""
    lists = {"steps", "triggers", "policies", "concepts"}
    for parameter in inspect.signature(build).parameters.values():
        sample: Any = {"a": "b"} if parameter.name == "entries" else ["a"] if parameter.name in lists else "a"
        yield parameter.name, parameter.default is not inspect.Parameter.empty, sample


PARAMETERS = [(build, name) for build in BUILDERS for name, _, _ in _arguments(build)]
OPTIONAL = [(build, name) for build in BUILDERS for name, is_optional, _ in _arguments(build) if is_optional]


def _samples(build: Make) -> dict[str, Any]:
    return {name: sample for name, _, sample in _arguments(build)}


def test_what_is_optional_and_empty_is_left_out() -> None:
    """CE-7."""
    empties: list[Any] = [None, "", [], ()]
    for (build, name), empty in product(OPTIONAL, empties):
        samples = _samples(build)
        expected = {field: value for field, value in samples.items() if field != name}
        with case(build, name, empty):
            assert expected == content_of(build(**{**samples, name: empty}))


def test_values_of_other_types_are_refused() -> None:
    """The error names builder and field."""
    others: list[Any] = [5, True, b"a", [1], {1: 2}, {"a": 1}, {"a"}, object, [["a"]]]
    for (build, name), wrong in product(PARAMETERS, others):
        message = rf"{name}\b.* of {build.__name__}\(\) must be "
        with case(build, name, wrong), pytest.raises(InvalidValueError, match=message):
            build(**{**_samples(build), name: wrong})


WRONG: list[tuple[Make, dict[str, Any], str]] = [
    (hint, {"text": None}, "text of hint() must be text, not NoneType"),
    (workflow, {"task": "t", "steps": "a"}, "steps of workflow() must be a list of text, not str"),
    (workflow, {"task": "t", "steps": ["a", None]}, "steps[1] of workflow() must be text, not NoneType"),
    (policy, {"rule": "r", "policies": "x"}, "policies of policy() must be a list of text and fragments, not str"),
    (
        policy,
        {"rule": "r", "policies": ["x", {}]},
        "policies[1] of policy() must be text or a fragment: expected a fragment, not dict; chatledger.fragments has helpers that make them",
    ),
    (
        glossary,
        {"entries": 5},
        "entries of glossary() must be an object of text, or a list of {term, expression}, not int",
    ),
    (
        glossary,
        {"entries": [("a", "b")]},
        "entries[0] of glossary() must be an object of the two texts term and expression, not tuple",
    ),
    (
        glossary,
        {"entries": [{"term": "a"}]},
        "entries[0] of glossary() must be an object of the two texts term and expression, not dict",
    ),
    (
        glossary,
        {"entries": [{"term": "a", "expression": 5}]},
        "entries[0].expression of glossary() must be text, not int",
    ),
    (
        glossary,
        {"entries": [{"term": "a", "expression": "b"}] * 2},
        "entries of glossary() has the term 'a' more than once; give each one expression",
    ),
    (glossary, {"entries": {"a": None}}, "entries['a'] of glossary() must be text, not NoneType"),
    (glossary, {"entries": {1: "b"}}, "a term in entries of glossary() must be text, not int"),
]


@pytest.mark.parametrize(("build", "given", "message"), WRONG, ids=range(len(WRONG)))
def test_errors_say_what_is_wrong(build: Make, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        build(**given)
    assert message == str(raised.value)


@pytest.mark.parametrize("sequence", [list, tuple, UserList], ids=lambda kind: kind.__name__)
def test_lists_may_be_any_sequence(sequence: Callable[[Any], Any]) -> None:
    """They become lists."""
    made = [
        workflow("t", sequence(["a"]), triggers=sequence(["b"])),
        analogy(sequence(["a"]), "r"),
        style_guide("p", never=sequence(["a"]), always=sequence(["b"])),
        policy("r", policies=sequence(["a"])),
        principle("t", "d", policies=sequence(["a"])),
    ]

    assert [
        {"task": "t", "steps": ["a"], "triggers": ["b"]},
        {"concepts": ["a"], "relationship": "r"},
        {"prefer": "p", "never": ["a"], "always": ["b"]},
        {"rule": "r", "policies": ["a"]},
        {"title": "t", "description": "d", "policies": ["a"]},
    ] == [content_of(each) for each in made]


def test_members_of_text_enums_become_text() -> None:
    class Tone(StrEnum):
        WARM = "warm"

    assert type(content_of(hint(Tone.WARM))) is str


def test_later_changes_have_no_effect() -> None:
    """What is passed is copied, and what is given out too."""
    steps, policies, entries = ["a"], ["p"], {"t": "e"}
    made = workflow("t", steps), policy("r", policies=policies), glossary(entries)
    before = copy.deepcopy([content_of(each) for each in made])
    steps.append("b")
    policies.append("q")
    entries["u"] = "f"
    for each in made:
        given = content_of(each)
        given.clear()

    assert before == [content_of(each) for each in made]


def test_fragments_compare_by_value() -> None:
    def make(tone: str) -> list[Fragment]:
        inner = policy("r", policies=[hint(tone)])
        return [persona("Guide", tone=tone), principle("t", "d", policies=["x", inner]), glossary({"a": tone})]

    assert make("warm") == make("warm")
    assert all(one != other for one, other in zip(make("warm"), make("cold"), strict=True))


def test_fragments_can_be_pickled_and_copied() -> None:
    made = principle("t", "d", policies=["x", hint("y")])

    assert made == pickle.loads(pickle.dumps(made))
    assert made == copy.deepcopy(made)


def test_fragments_in_policies() -> None:
    """They are encoded with the rest, at any depth; decoding gives them as fragments."""
    made = principle("t", "d", policies=["x", policy("r", policies=[hint("y"), "z"])])

    assert {
        "type": "principle",
        "title": "t",
        "description": "d",
        "policies": ["x", {"type": "policy", "rule": "r", "policies": [{"type": "hint", "text": "y"}, "z"]}],
    } == stored_form(made)
    assert ["x", policy("r", policies=[hint("y"), "z"])] == content_of(made)["policies"]


def test_a_mapping_of_the_shape_is_a_fragment() -> None:
    """CE-3 holds here too."""
    made = policy("r", policies=[{"name": "hint", "data": "x"}])  # type: ignore[list-item]

    assert [Fragment("hint", "x")] == content_of(made)["policies"]


def test_encoding_needs_codecs_inside() -> None:
    """Decoding does not."""
    made = principle("t", "d", policies=[fragment("plain", "x")])

    assert [fragment("plain", "x")] == content_of(made)["policies"]
    with pytest.raises(MissingCodecError, match="'plain'"):
        stored_form(made)


def test_depth_is_bounded_where_it_is_encoded() -> None:
    """However deep: an error of ours, not of the interpreter."""
    made = policy("r")
    for _ in range(20_000):
        made = policy("r", policies=[made])

    assert 1 == len(content_of(made)["policies"])
    with pytest.raises(FragmentConversionError, match="more than 200 levels deep"):
        stored_form(made)
