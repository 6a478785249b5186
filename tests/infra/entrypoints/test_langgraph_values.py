"""Values of channels in pieces: what is remembered of them makes no difference."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from tests.support.soak import examples

from chatledger.domain.versioned.content import ListNode, Serial, Tree
from chatledger.infra.entrypoints.langgraph.values import Values

_CLASSES: st.SearchStrategy[type[HumanMessage | AIMessage]] = st.sampled_from([HumanMessage, AIMessage])
_CHANGES = st.tuples(st.integers(0, 200), st.sampled_from(["content", "id", "additional_kwargs", "class", "plain"]))


def _changed(messages: list[Any], at: int, how: str) -> None:
    """Change an element in place, or put another one there."""
    message = messages[at % len(messages)]
    if how == "plain" or not isinstance(message, HumanMessage | AIMessage):
        messages[at % len(messages)] = {"content": "plain" * 200}
    elif how == "class":
        messages[at % len(messages)] = AIMessage(message.text, id=message.id)
    elif how == "additional_kwargs":
        message.additional_kwargs["n"] = message.additional_kwargs.get("n", 0) + 1
    else:
        setattr(message, how, f"changed {how} {at}")


@given(steps=st.lists(st.tuples(st.lists(_CLASSES, max_size=50), st.lists(_CHANGES, max_size=2)), max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_a_list_that_grows_and_changes_is_encoded_as_anew(
    steps: list[tuple[list[type[HumanMessage | AIMessage]], list[tuple[int, str]]]],
) -> None:
    """Also at the bounds of the runs in which elements are looked up, and where a message was changed in place."""
    remembering, messages = Values(JsonPlusSerializer()), list[Any]()
    for added, changes in steps:
        messages += [made(f"text {len(messages)}", id=f"m{len(messages)}") for made in added]
        for at, how in changes if messages else ():
            _changed(messages, at, how)
        found, anew = remembering.encode(messages), Values(JsonPlusSerializer()).encode(messages)

        assert found == anew
        assert _is_whole(found)


def _is_whole(tree: Tree | Serial) -> bool:
    """Whether a list names just the elements that come with it, in their order."""
    return not (isinstance(tree, Tree) and isinstance(tree.content, ListNode)) or tree.content.children == b"".join(
        child.digest for child in tree.children
    )
