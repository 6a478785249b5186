"""`user`, `assistant`, `assistant_text` and `message`: from what was said to fragments, and back (CE-5 to CE-7)."""

import copy
import uuid
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.json_values import ids, json_values, objects, texts

import chatledger
from chatledger import Fragment, InvalidValueError, Message, NewMessage, assistant, assistant_text, message, user
from chatledger.fragments import is_lazy_fragment, is_message_fragment


def stored(fragment: Fragment) -> Any:
    """The stored message; it is what a model gets as well."""
    assert fragment.codec is not None
    assert fragment.codec.encode() == fragment.codec.decode()
    return fragment.codec.encode()


text_parts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({"type": st.just("text"), "text": texts})
file_parts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.just("file"), "url": texts, "rest": json_values}
)
origins: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"acme": st.fixed_dictionaries({"itemId": st.sampled_from("abc")})}
)
reasoning_parts: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.just("reasoning"), "text": texts}, optional={"providerMetadata": origins}
)
ui_messages: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system"]),
        "parts": st.lists(text_parts | file_parts | reasoning_parts, max_size=4),
    },
    optional={"id": ids, "metadata": objects},
)


def distinct(given_parts: list[Any]) -> list[Any]:
    """The parts without reasoning parts whose text came before under the same item id of the provider."""
    seen: set[tuple[str, str]] = set()
    kept: list[Any] = []
    for part in given_parts:
        item = part.get("providerMetadata", {}).get("acme", {}).get("itemId")
        if item is None or (item, part["text"]) not in seen:
            kept.append(part)
        if item is not None:
            seen.add((item, part["text"]))
    return kept


@pytest.mark.parametrize(
    ("make", "role"),
    [(user, "user"), (assistant, "assistant"), (assistant_text, "assistant"), (message, "user")],
    ids=["user", "assistant", "assistant_text", "message"],
)
def test_text_becomes_a_message_with_one_part(make: Any, role: str) -> None:
    """Under a new id, with the role as the name (CE-5, CE-6, CE-7)."""
    fragment = make("Plan a weekend")
    assert fragment.id is not None

    assert uuid.UUID(fragment.id)
    assert stored(fragment) == {"id": fragment.id, "role": role, "parts": [{"type": "text", "text": "Plan a weekend"}]}
    assert (fragment.name, fragment.type, fragment.persist, fragment.metadata) == (role, "message", True, {})
    assert is_message_fragment(fragment)
    assert not is_lazy_fragment(fragment)
    assert make("Plan a weekend").id != fragment.id


@given(ui_messages)
def test_user_takes_messages(given_message: dict[str, Any]) -> None:
    """The role becomes `user`, the rest stays, the id too if there is one (CE-5)."""
    before = copy.deepcopy(given_message)
    fragment = user(given_message)

    assert given_message == before
    assert fragment.name == "user"
    assert fragment.id == given_message.get("id", fragment.id)
    expected = {**given_message, "id": fragment.id, "role": "user", "parts": distinct(given_message["parts"])}
    assert stored(fragment) == expected


@given(ui_messages, st.none() | ids)
def test_assistant_takes_messages(given_message: dict[str, Any], message_id: str | None) -> None:
    """The role becomes `assistant`; an id that is given wins over that of the message (CE-6)."""
    fragment = assistant(given_message, message_id)

    assert fragment.name == "assistant"
    assert fragment.id == (message_id or given_message.get("id", fragment.id))
    assert stored(fragment) == {
        **given_message,
        "id": fragment.id,
        "role": "assistant",
        "parts": distinct(given_message["parts"]),
    }


@given(ui_messages)
def test_message_keeps_the_role(given_message: dict[str, Any]) -> None:
    """Stored data turn back into the fragment they came from, again and again (CE-7)."""
    fragment = message(given_message)
    again = message(stored(fragment))

    assert fragment.name == given_message["role"]
    assert again == fragment
    assert stored(again) == stored(fragment)


@given(ui_messages, st.sampled_from(["sender_id", "agent_id"]), ids)
def test_a_message_that_was_read_turns_back(given_message: dict[str, Any], who: str, name: str) -> None:
    """With its id and where it comes from (CE-7)."""
    fragment = message(given_message)
    read = Message(
        id=cast("str", fragment.id),
        chat_id="c",
        parent_id="p",
        name=fragment.name,
        type="message",
        data=stored(fragment),
        created_at=5,
        reply_to="p",
        **cast("dict[str, Any]", {who: name}),
    )
    back = message(read)

    assert (back.id, back.name, stored(back)) == (fragment.id, fragment.name, stored(fragment))
    assert back.metadata == {who: name, "reply_to": "p"}


def test_parts_are_copied() -> None:
    """Later changes by the caller have no effect (CE-5)."""
    given_message: dict[str, Any] = {"role": "user", "parts": [{"type": "text", "text": "one"}]}
    fragments = [user(given_message), assistant(given_message), message(given_message)]
    given_message["parts"][0]["text"] = "two"
    given_message["parts"].append({"type": "text", "text": "three"})
    given_message["metadata"] = {}

    for fragment in fragments:
        assert stored(fragment)["parts"] == [{"type": "text", "text": "one"}]
        assert "metadata" not in stored(fragment)


def test_repeated_reasoning_is_dropped_after_the_first() -> None:
    """
    By the provider's item id, whichever provider; parts without one stay (CE-6).

    Only repetitions: the paragraphs of one summary share the id of their item, and each has a text of its own.
    """

    def reasoning(text: str, **provider: str) -> dict[str, Any]:
        metadata = {name: {"itemId": item} for name, item in provider.items()}
        return {"type": "reasoning", "text": text, **({"providerMetadata": metadata} if metadata else {})}

    given_parts: list[Any] = [
        reasoning("a", openai="r1"),
        {"type": "text", "text": "between"},
        reasoning("b", openai="r1"),
        reasoning("a", openai="r1"),
        reasoning("a", openai="r2"),
        reasoning("d"),
        reasoning("d"),
        reasoning("e", azure="r3"),
        reasoning("e", azure="r3"),
        {"type": "tool-x", "providerMetadata": {"openai": {"itemId": "r1"}}},
    ]
    kept = stored(assistant({"role": "assistant", "parts": given_parts}))["parts"]

    assert [part.get("text", part["type"]) for part in kept] == [
        "a", "between", "b", "a", "d", "d", "e", "tool-x",
    ]  # fmt: skip


def test_odd_parts_are_kept() -> None:
    """What is no part at all is for whoever reads it to judge."""
    odd: list[Any] = [
        "text",
        5,
        None,
        [],
        {"type": "reasoning", "providerMetadata": None},
        {"type": "reasoning", "providerMetadata": {"a": 1, "b": {"itemId": 5}}},
    ]

    assert stored(assistant({"role": "assistant", "parts": odd}))["parts"] == odd


def test_where_a_message_comes_from(ledger: chatledger.Ledger) -> None:
    """Sender, agent and reply are stored with it; what is not given is not there."""
    ledger.create_chat("c", "u")
    ledger.append(
        "c",
        [
            user("one", id="m1", sender_id="bob"),
            assistant("two", "m2", agent_id="guide", reply_to="m1"),
            assistant_text("three", "m3", agent_id="guide", reply_to="m2"),
            user("four", id="m4", reply_to="m1"),
        ],
    )
    read = ledger.get_messages("c")

    assert [(one.sender_id, one.agent_id, one.reply_to) for one in read] == [
        ("bob", None, None),
        (None, "guide", "m1"),
        (None, "guide", "m2"),
        (None, None, "m1"),
    ]
    # What was read is what was said: adding it again does nothing.
    assert ledger.append("c", [message(one) for one in read]) == read


def test_drafts_turn_into_fragments() -> None:
    """With their own id, or a new one (CE-7)."""
    without, with_one = message(NewMessage("note", [1])), message(NewMessage("note", None, id="m1", agent_id="a"))

    assert uuid.UUID(without.id)
    assert (without.name, stored(without)) == ("note", [1])
    assert (with_one.id, stored(with_one), with_one.metadata) == ("m1", None, {"agent_id": "a"})


NO_MESSAGES: list[Any] = [
    None,
    5,
    b"text",
    ["text"],
    {},
    {"role": "user"},
    {"parts": []},
    {"role": 5, "parts": []},
    {"role": "user", "parts": "text"},
    {"role": "user", "parts": [], "id": ""},
    {"role": "user", "parts": [], "id": 5},
    {"role": "user", "parts": [], "id": "a\0b"},
]


@pytest.mark.parametrize("bad", NO_MESSAGES, ids=ascii)
@pytest.mark.parametrize("make", [user, assistant, message], ids=["user", "assistant", "message"])
def test_what_is_no_message_is_refused(make: Any, bad: Any) -> None:
    """At once; the error says what was expected, or which id is wrong."""
    with pytest.raises(InvalidValueError, match=r"UIMessage|message id"):
        make(bad)


@pytest.mark.parametrize("bad", [None, 5, {"role": "assistant", "parts": []}], ids=ascii)
def test_assistant_text_takes_text(bad: Any) -> None:
    """And says that `assistant` takes more."""
    with pytest.raises(InvalidValueError, match=r"assistant\(\) also takes"):
        assistant_text(bad)


@pytest.mark.parametrize("bad", ["", 5, "a\0b", "\ud800", "x" * 2049], ids=ascii)
def test_ids_are_checked(bad: Any) -> None:
    """Where they are given."""
    with pytest.raises(InvalidValueError, match="message id"):
        user("x", id=bad)
    for make in (assistant, assistant_text):
        with pytest.raises(InvalidValueError, match="message id"):
            make("x", bad)


def test_a_role_is_a_name() -> None:
    with pytest.raises(InvalidValueError, match="name of a fragment"):
        message({"role": "", "parts": []})
