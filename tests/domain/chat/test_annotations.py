"""Annotations at work: which messages a model gets, and which searches leave out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stories import Story

from chatledger.domain.chat.decide_runs import decide_annotate
from chatledger.domain.chat.events import MessagesAnnotated, MessagesAppended
from chatledger.domain.chat.history import annotation_events, for_model, is_left_out, replacement
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Annotation, Message

MESSAGES = ("m1", "m2", "m3", "m4", "m5")


def annotated(said: dict[str, dict[str, Any]]) -> ReplayedChat:
    """Five messages on `main`, and two versions beside the last one, with annotations."""
    story = Story().chain(*MESSAGES)
    head = story.chat().messages[-1]
    versions = tuple(
        Message(id=version, parent_id=head.parent_id, name="user", data=version, created_at=1)
        for version in ("v1", "v2")
    )
    story.write([MessagesAppended(versions)])
    for message_id, changes in said.items():
        story.write([MessagesAnnotated((message_id,), changes)])
    return story.chat()


def test_messages_that_say_the_same_share_an_event() -> None:
    """Whatever the order of what they say."""
    events = annotation_events(
        [
            ("m1", Annotation(stale=True, metadata={"a": 1, "b": 2})),
            ("m3", Annotation(hidden=True, metadata={"c": 3})),
            ("m4", Annotation(stale=True, metadata={"b": 2, "a": 1})),
        ]
    )

    assert [
        MessagesAnnotated(("m1", "m4"), {"stale": True, "metadata": {"a": 1, "b": 2}}),
        MessagesAnnotated(("m3",), {"hidden": True, "metadata": {"c": 3}}),
    ] == events
    assert [] == annotation_events([])
    assert [] == annotation_events([("m1", Annotation()), ("m2", Annotation(stale=False, metadata={}))])


@pytest.mark.parametrize(
    ("given", "metadata"),
    [
        ({"merged_metadata": {"b": [2]}}, {"a": 1, "b": [2]}),
        ({"merged_metadata": {"a": None}}, {"a": None}),
        ({"merged_metadata": {}}, None),
        ({"metadata": {"b": 2}}, {"b": 2}),
        ({"metadata": None}, {}),
        ({"metadata": {"a": 1}}, None),
        ({}, None),
    ],
)
def test_metadata_are_set_among_others_or_take_their_place(given: dict[str, Any], metadata: Any) -> None:
    chat = annotated({"m1": {"metadata": {"a": 1}}})
    changed = [] if metadata is None else [MessagesAnnotated(("m1",), {"metadata": metadata})]

    assert decide_annotate(chat, "m1", **given) == changed
    assert decide_annotate(chat, "m2", metadata=None) == decide_annotate(chat, "m2", merged_metadata={}) == []
    with pytest.raises(InvalidValueError, match="give metadata to merge, or replace_metadata, not both"):
        decide_annotate(chat, "m1", metadata=None, merged_metadata={})


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, None),
        ({"m1": {"stale": True}}, None),
        ({"m1": {"replaced_by": "m2"}}, "m2"),
        ({"m1": {"replaced_by": "m2"}, "m2": {"hidden": True}}, "m2"),
        ({"m1": {"replaced_by": "m2"}, "m2": {"replaced_by": "m3"}, "m3": {"replaced_by": "v1"}}, "v1"),
        ({"m1": {"replaced_by": "m2"}, "m2": {"replaced_by": "m1"}}, None),
        ({"m1": {"replaced_by": "m2"}, "m2": {"replaced_by": "m3"}, "m3": {"replaced_by": "m2"}}, None),
    ],
)
def test_replacements_are_followed_to_their_end(said: dict[str, dict[str, Any]], found: str | None) -> None:
    """Those in a circle have none."""
    chat = annotated(said)
    assert found == replacement(chat, "m1")
    assert (found is not None) == is_left_out(chat, "m1")


def test_what_searches_leave_out() -> None:
    """Hidden messages and replaced ones; those that are merely stale, or in a circle, are found."""
    said: dict[str, dict[str, Any]] = {
        "m1": {"hidden": True},
        "m2": {"stale": True},
        "m3": {"replaced_by": "v1"},
        "m4": {"replaced_by": "m5"},
        "m5": {"replaced_by": "m4"},
    }
    chat = annotated(said)
    assert ["m1", "m3"] == [message.id for message in chat.messages if is_left_out(chat, message.id)]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({}, "m1 m2 m3 m4 m5"),
        ({"m2": {"stale": True}}, "m1 m2 m3 m4 m5"),
        ({"m2": {"hidden": True}, "m4": {"stale": True}}, "m1 m3 m4 m5"),
        ({"m2": {"replaced_by": "v1"}}, "m1 v1 m3 m4 m5"),
        ({"m2": {"replaced_by": "v1"}, "v1": {"replaced_by": "v2"}}, "m1 v2 m3 m4 m5"),
        ({"m2": {"replaced_by": "v1"}, "v1": {"hidden": True}}, "m1 m3 m4 m5"),
        ({"m1": {"replaced_by": "v1"}, "m3": {"replaced_by": "v1"}, "m4": {"hidden": True}}, "m2 v1 m5"),
        ({"m2": {"replaced_by": "m4"}}, "m1 m3 m4 m5"),
        ({"m2": {"replaced_by": "m5"}}, "m1 m3 m4 m5"),
        ({"m2": {"replaced_by": "m3"}, "m3": {"replaced_by": "m2"}}, "m1 m2 m3 m4 m5"),
        ({"m5": {"replaced_by": "v2"}}, "m1 m2 m3 m4 v2"),
    ],
)
def test_what_a_model_gets(said: dict[str, dict[str, Any]], shown: str) -> None:
    """Root first, each message once, a replacement in the place of the last one that it stands for."""
    chat = annotated(said)
    chain = chat.get_chain("m5")

    assert shown.split() == [message.id for message in for_model(chat, chain)]
    assert list(MESSAGES) == [message.id for message in chain]


def test_a_message_that_is_given_whatever_was_said_of_it() -> None:
    """Such as the one that a run answers."""
    chat = annotated({"m2": {"hidden": True}, "m4": {"replaced_by": "v1"}, "m5": {"stale": True}})
    chain = chat.get_chain("m5")
    for always, shown in (("m2", "m1 m2 m3 v1 m5"), ("m4", "m1 m3 m4 m5"), (None, "m1 m3 v1 m5")):
        assert shown.split() == [message.id for message in for_model(chat, chain, always=always)]
    assert ["m3", "v1"] == [message.id for message in for_model(chat, chain[2:4])]
    assert [] == for_model(chat, []) == for_model(chat, chain[1:2])


@given(st.dictionaries(st.sampled_from([*MESSAGES, "v1", "v2"]), st.sampled_from([*MESSAGES, "v1", "v2"])))
def test_a_model_gets_no_message_twice(replaced: dict[str, str]) -> None:
    """Whatever replaces what, also in circles."""
    chat = annotated({old: {"replaced_by": new} for old, new in replaced.items() if old != new})
    given_ = [message.id for message in for_model(chat, chat.get_chain("m5"))]

    assert len(given_) == len(set(given_))
