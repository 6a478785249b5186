"""Python values as data: models, dataclasses, sets, dates."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from email.message import Message
from enum import Enum
from io import StringIO
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

import chatledger
from chatledger import ContextEngine, Ledger
from chatledger.domain.context.fragments import plain_form
from chatledger.errors import InvalidValueError, ResolverError
from chatledger.fragments import Fragment, compute_now, hint
from chatledger.renderers import MarkdownRenderer, Renderer, TomlRenderer, ToonRenderer, XmlRenderer

RENDERERS: list[Renderer] = [XmlRenderer(), MarkdownRenderer(), TomlRenderer(), ToonRenderer()]


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        yield opened


class Color(Enum):
    RED = "red"
    MIX = ("red", 3)


class City(pydantic.BaseModel):
    name: str
    tags: set[str]
    note: str | None = None


class Cities(pydantic.RootModel[list[City]]):
    pass


@dataclass
class Trip:
    to: Any
    days: int = 2
    stops: list[Any] = field(default_factory=list[Any])


@dataclass(frozen=True)
class Spot:
    x: float


class Seat(msgspec.Struct):
    row: int
    hint: Any = msgspec.UNSET


CASES: dict[str, tuple[Any, Any]] = {
    "model": (City(name="Riga", tags={"sea", "art"}), {"name": "Riga", "tags": ["art", "sea"]}),
    "list of models": (Cities([City(name="Riga", tags=set())]), [{"name": "Riga", "tags": []}]),
    "dataclass": (Trip("Riga", stops=[Trip("Ventspils")]), {"to": "Riga", "days": 2, "stops": [{"to": "Ventspils", "days": 2, "stops": []}]}),
    "struct": ([Seat(1), Seat(2, hint("window"))], [{"row": 1}, {"row": 2, "hint": hint("window")}]),
    "enumerations": ([Color.RED, Color.MIX], ["red", ["red", 3]]),
    "dates": (
        [datetime(2026, 5, 1, 9, tzinfo=UTC), date(2026, 5, 1), time(9, 30), timedelta(hours=1)],
        ["2026-05-01T09:00:00+00:00", "2026-05-01", "09:30:00", "PT3600S"],
    ),
    "id and amount": ([UUID(int=1), Decimal("1.50")], ["00000000-0000-0000-0000-000000000001", "1.50"]),
    "set": ({"b", "a", 2, 1.5, None, (2, "x"), frozenset({"z", "y"}), Spot(2), Spot(1)}, [1.5, 2, "a", "b", [2, "x"], ["y", "z"], {"x": 1}, {"x": 2}]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_python_values_stand_for(ledger: Ledger, case: str) -> None:
    """In each renderer, with and without a computation before, and in an engine."""
    value, plain = CASES[case]
    given, expected = [Fragment("n", {"k": value})], [Fragment("n", {"k": plain})]
    computed = [Fragment("n", {"k": value, "now": lambda: None})]
    engine = ContextEngine(ledger, "trip", "ada").set(*given)
    for renderer in RENDERERS:
        text = renderer.render(expected)
        assert text == renderer.render(given)
        assert text == renderer.render(compute_now(given))
        assert text == renderer.render(compute_now(computed))
        assert text == engine.resolve(renderer).system_prompt


def test_a_function_may_give_a_model() -> None:
    made = compute_now([Fragment("n", lambda: [City(name="Riga", tags={"b", "a"}), Trip(lambda: "Oslo")])])

    assert XmlRenderer().render([Fragment("n", [{"name": "Riga", "tags": ["a", "b"]}, {"to": "Oslo", "days": 2, "stops": []}])]) == (
        XmlRenderer().render(made)
    )  # fmt: skip


def test_a_dataclass_that_contains_itself_ends() -> None:
    trip = Trip("Riga")
    trip.stops += [trip, "x"]

    assert XmlRenderer().render([Fragment("n", {"to": "Riga", "days": 2, "stops": ["x"]})]) == XmlRenderer().render(
        [Fragment("n", trip)]
    )
    assert compute_now([Fragment("n", [trip, lambda: 1])])[0].data == [{"to": "Riga", "days": 2, "stops": ["x"]}, 1]


def test_what_an_engine_was_given_does_not_change(ledger: Ledger) -> None:
    """CE-18."""
    trip = Trip("Riga")
    engine = ContextEngine(ledger, "trip", "ada").set(Fragment("trip", trip))
    trip.to = "Oslo"

    assert "<to>Riga</to>" in engine.resolve().system_prompt


@dataclass
class Pages:
    """It is iterated over: a computed value, not its fields."""

    count: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


def test_what_is_iterated_over_is_computed() -> None:
    assert [0, 1] == compute_now([Fragment("n", Pages(2))])[0].data
    with pytest.raises(InvalidValueError, match=r"^n is a Pages"):
        XmlRenderer().render([Fragment("n", Pages(2))])


class Broken(pydantic.BaseModel):
    @pydantic.model_serializer
    def _dump(self) -> dict[str, Any]:
        raise KeyError


class Wrapped:
    """A file that is none by its class, as those of `tempfile` and of web frameworks are."""

    def read(self) -> str:
        return "a"

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "text file": (lambda: StringIO("a\nb"), r"^n\.k\[0\] is a StringIO, an open file"),
    "wrapped file": (Wrapped, r"^n\.k\[0\] is a Wrapped, an open file"),
    "items": ({"a": 1}.items, r"^n\.k\[0\] is a dict_items"),
    "e-mail": (Message, r"^n\.k\[0\] is a Message, which has keys"),
    "broken model": (Broken, r"^n\.k\[0\] is a Broken whose model_dump\(\) raised \w+"),
    "set of functions": (lambda: {print}, r"^n\.k\[0\] is a set that holds a builtin_function_or_method"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_only_looks_like_data_is_refused(ledger: Ledger, case: str) -> None:
    """With its path: in renderers, in an engine, and where a function gave it."""
    make, message = REFUSED[case]
    for renderer in RENDERERS:
        with pytest.raises(InvalidValueError, match=message):
            renderer.render([Fragment("n", {"k": [make()]})])
    with pytest.raises(InvalidValueError, match=message):
        ContextEngine(ledger, "trip", "ada").set(Fragment("n", {"k": [make()]})).resolve()
    for function in (lambda: {"k": [make()]}, lambda: {"k": [make]}):
        with pytest.raises((InvalidValueError, ResolverError), match=r"n\.k\[0\]"):
            ContextEngine(ledger, "trip", "ada").set(Fragment("n", function)).resolve()


members = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.dates() | st.sampled_from(Color),
    lambda inner: st.frozensets(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=5,
)


@settings(max_examples=examples(200))
@given(st.lists(members, unique=True, max_size=6), st.randoms(use_true_random=False))
def test_a_set_has_one_order(values: list[Any], random: Any) -> None:
    """However it was filled. Values that are written alike may change places."""
    shuffled = list(values)
    random.shuffle(shuffled)

    first, second = (XmlRenderer().render([Fragment("n", {"k": set(order)})]) for order in (values, shuffled))
    assert first == second
    assert len(values) == len(plain_form(set(values)))


_SET = '{"b", "a", "c", ("x", 1), frozenset("pqrst")}'
_SCRIPT = f"""
import sys
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.render.xml import XmlRenderer
assert "pydantic" not in sys.modules
print(XmlRenderer().render([Fragment("n", {_SET})]))
"""


def test_a_set_is_written_alike_by_each_process() -> None:
    """Hashes of texts differ from process to process. Pydantic is not imported."""
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run([sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, check=True, text=True)

    items = ["a", "b", "c", "p,q,r,s,t", "x,1"]
    assert ["<n>", *(f"  <n>{item}</n>" for item in items), "</n>"] == made.stdout.splitlines()
