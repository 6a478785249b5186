"""Records of foreign files, made to fit a ledger's limits one by one."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.import_fit import fit_message, with_floats
from chatledger.domain.chat.import_tree import Located, LostMessage, Reporter, link_messages
from chatledger.domain.chat.interchange import ImportedMessage


def message(message_id: str, parent_id: str | None, data: Any = "x", **rest: Any) -> ImportedMessage:
    return ImportedMessage(id=message_id, parent_id=parent_id, name="user", data=data, **rest)


def made(fields: dict[str, Any]) -> ImportedMessage:
    """A message that is sound but for these fields."""
    values: dict[str, Any] = {"id": "m", "parent_id": None, "name": "user", "data": 1, **fields}
    return ImportedMessage(**values)


def quiet() -> Reporter:
    return Reporter("file", strict=False, on_problem=lambda _: None)


@given(st.floats(2.0**64, 2.0**69))
def test_a_number_as_javascript_writes_it_is_exact(number: float) -> None:
    """Its shortest digits, and zeros: the float is the one it came from, and nothing is told."""
    rounded: list[int] = []

    assert [number] == with_floats([int(Decimal(repr(number)))], rounded)
    assert rounded == []


def test_other_integers_are_told() -> None:
    """What was no float loses digits; what no float can hold stays, and is refused."""
    rounded: list[int] = []
    exact = 2**64 - 1

    assert {"a": [float(2**70 + 1)], "b": exact, "c": 10**400} == with_floats(
        {"a": [2**70 + 1], "b": exact, "c": 10**400}, rounded
    )
    assert [2**70 + 1] == rounded


@pytest.mark.parametrize(
    ("given_fields", "kept", "told"),
    [
        ({"type": ""}, {"type": None}, "type must not be empty; imported without"),
        ({"sender_id": "\0"}, {"sender_id": None}, "sender_id must not contain a NUL"),
        ({"sender_id": "a", "agent_id": "b"}, {"sender_id": "a", "agent_id": None}, "imported without agent_id"),
        ({"created_at": 2**63}, {"created_at": None}, "created_at must be whole milliseconds"),
        ({"data": {"n": 2**70}}, {"data": {"n": float(2**70)}}, None),
        ({"parent_id": "x" * 3000}, {"parent_id": "x" * 3000}, None),
    ],
)
def test_an_attribute_that_is_refused_is_left_out(
    given_fields: dict[str, Any], kept: dict[str, Any], told: str | None
) -> None:
    said: list[str] = []
    fitted = fit_message("c", made(given_fields), said.append)

    assert fitted is not None
    assert kept == {name: getattr(fitted, name) for name in kept}
    assert [told is not None and told in line for line in said] == [True] * (told is not None)


@pytest.mark.parametrize("fields", [{"id": ""}, {"name": "\0"}, {"data": 10**400}, {"data": [float("nan")]}])
def test_a_message_that_cannot_be_kept_is_skipped(fields: dict[str, Any]) -> None:
    said: list[str] = []

    assert fit_message("c", made(fields), said.append) is None
    assert ["skipped"] == [line[-7:] for line in said]


def test_a_message_beyond_the_largest_event_is_skipped() -> None:
    """64 MiB; texts below that lie beside the log."""
    said: list[str] = []

    assert fit_message("c", message("m", None, "x" * 2_000_000), said.append) is not None
    assert fit_message("c", message("m", None, "x" * (65 * 1024 * 1024)), said.append) is None
    assert 1 == len(said)


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=14))
def test_what_follows_skipped_messages_goes_to_the_nearest_one_above(tree: list[tuple[int, bool]]) -> None:
    """However many are skipped in a row: the kept ones keep their order of descent, and nothing else becomes a root."""
    parents = {str(at): str(parent % at) if at and parent < 12 else None for at, (parent, _) in enumerate(tree)}
    kept = {str(at) for at, (_, is_kept) in enumerate(tree) if is_kept}
    records: list[Located] = [
        (message(key, parent) if key in kept else LostMessage(key, parent), None) for key, parent in parents.items()
    ]
    linked = link_messages("c", records, report=quiet())

    def above(key: str | None) -> str | None:
        while key is not None and key not in kept:
            key = parents[key]
        return key

    assert {key: above(parents[key]) for key in kept} == {one.id: one.parent_id for one in linked.messages}
    assert {key: above(key) for key in parents.keys() - kept} == linked.instead


def test_skipped_messages_in_a_circle() -> None:
    """They are nowhere below a kept one."""
    records: list[Located] = [(LostMessage("a", "b"), None), (LostMessage("b", "a"), None), (message("m", "a"), None)]
    linked = link_messages("c", records, report=quiet())

    assert [("m", None)] == [(one.id, one.parent_id) for one in linked.messages]
