"""Which message the answer at the end of a chain follows."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.context.summary import answered_message
from chatledger.domain.forms.detect import form_of
from chatledger.domain.values import Message

CALL: Final[dict[str, Any]] = {
    "type": "tool-weather",
    "toolCallId": "1",
    "state": "output-available",
    "input": {},
    "output": "rain",
}


def chain_of(*said: tuple[str, str, dict[str, Any]]) -> list[Message]:
    """A chain of messages, each by its id, its name, and what else it has."""
    return [
        Message(
            id=message_id,
            name=name,
            created_at=0,
            agent_id=rest.pop("agent_id", None),
            data={"role": name, **rest},
            form=form_of({"role": name, **rest}),
        )
        for message_id, name, rest in ((message_id, name, dict(rest)) for message_id, name, rest in said)
    ]


def parts(*found: dict[str, Any]) -> dict[str, Any]:
    return {"parts": list(found)}


TEXT: Final = parts({"type": "text", "text": "words"})
RESULTS: Final = parts(CALL)
ANSWERED: Final = {"content": [{"type": "tool_result", "tool_use_id": "1", "content": "rain"}]}
"""A message of Anthropic's API."""
REMINDER: Final[dict[str, Any]] = {**TEXT, "metadata": {"synthetic": {"once_ids": []}}}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], None),
        ([("q", "user", TEXT)], "q"),
        ([("q", "user", TEXT), ("a", "assistant", TEXT)], "q"),
        ([("q", "user", TEXT), ("a", "assistant", TEXT), ("b", "assistant", TEXT)], "q"),
        ([("a", "assistant", TEXT)], None),
        ([("s", "system", TEXT), ("a", "assistant", TEXT)], "s"),
        ([("q", "user", TEXT), ("s", "system", TEXT)], "s"),
        ([("q", "user", TEXT), ("c", "assistant", RESULTS), ("t", "tool", TEXT), ("a", "assistant", TEXT)], "q"),
        ([("q", "user", TEXT), ("c", "assistant", TEXT), ("t", "tool", TEXT)], "q"),
        ([("q", "user", TEXT), ("c", "assistant", TEXT), ("t", "user", ANSWERED), ("a", "assistant", TEXT)], "q"),
        ([("q", "user", TEXT), ("c", "assistant", TEXT), ("r", "user", REMINDER), ("a", "assistant", TEXT)], "q"),
        ([("q", "user", parts()), ("a", "assistant", TEXT)], "q"),
        ([("q", "user", parts(CALL, {"type": "text", "text": "?"})), ("a", "assistant", TEXT)], "q"),
        ([("q", "user", {"any": "data"}), ("a", "assistant", {"any": "data"})], "q"),
        ([("q", "user", TEXT), ("a", "assistant", TEXT), ("b", "assistant", {**TEXT, "agent_id": "two"})], "a"),
    ],
    ids=[
        "nothing", "only a question", "an answer", "two messages", "a greeting", "after a system message", "a note",
        "tools", "ends with a tool", "results as user messages", "a reminder", "an empty question", "a question with results",
        "other data", "another agent",
    ],
)  # fmt: skip
def test_the_message_that_is_answered(said: list[tuple[str, str, dict[str, Any]]], expected: str | None) -> None:
    """The whole turn of the assistant goes, and nothing that anybody else said."""
    found = answered_message(reversed(chain_of(*said)))

    assert expected == (None if found is None else found.id)


names = st.sampled_from(["user", "assistant", "tool", "system"])


@given(st.lists(names, max_size=8))
def test_what_follows_the_question_is_no_question(said: list[str]) -> None:
    """It is on the chain, no user says anything after it, and going back from there leads nowhere else."""
    chain = chain_of(*((str(at), name, TEXT) for at, name in enumerate(said)))
    found = answered_message(reversed(chain))
    kept = 0 if found is None else int(found.id) + 1

    assert "user" not in said[kept:]
    assert kept == len(said) or said[kept] == "assistant"
    if kept and said[kept - 1] == "user":
        assert answered_message(reversed(chain[:kept])) == found
