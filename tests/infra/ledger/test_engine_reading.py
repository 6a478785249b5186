"""Opening, setting and reading with a context engine (CE-15 to CE-25)."""

import pickle
from typing import Any

import pytest
from tests.support.engine_world import EngineWorld, as_set, data, shown, texts
from tests.support.ledger_world import length

from chatledger import (
    AsyncContextEngine,
    ContextEngine,
    Fragment,
    Head,
    InvalidValueError,
    NewMessage,
    assistant,
    message,
    user,
)
from chatledger.errors import ChatNotFoundError, MissingCodecError, TranslationError
from chatledger.fragments import fragment, hint, last_assistant_message, role
from chatledger.renderers import MarkdownRenderer


def anything(value: Any) -> Any:
    """Pass a value that the type checkers would refuse, because it is what a test is about."""
    return value


# Opening


@pytest.mark.parametrize("bad", ["", "a\0b", "\ud800", "x" * 2049, None, 5, b"chat"], ids=ascii)
@pytest.mark.parametrize("which", ["chat_id", "user_id"])
def test_ids_are_checked_at_once(world: EngineWorld, which: str, bad: Any) -> None:
    """`InvalidValueError` names which id it is; nothing is written (CE-15)."""
    given = {"chat_id": "c", "user_id": "u", which: bad}
    kind: Any = ContextEngine if world.kind == "sync" else AsyncContextEngine
    with pytest.raises(InvalidValueError, match=which):
        kind(world.beneath, **given)

    assert length(world.ledger) == 0


@pytest.mark.parametrize("bad", [5, "text", ["a"], [("a", 1)], {"a": {1}}, {1: 2}, {"a": float("inf")}], ids=ascii)
def test_metadata_are_checked_at_once(world: EngineWorld, bad: Any) -> None:
    """Metadata are a JSON object or None (CE-15)."""
    with pytest.raises(InvalidValueError, match="metadata"):
        world.engine(metadata=bad)

    assert length(world.ledger) == 0


@pytest.mark.parametrize("bad", [None, "memory:", object()], ids=["none", "location", "object"])
def test_an_engine_works_on_a_ledger(bad: Any) -> None:
    """Anything else is refused at once, with what to use instead."""
    with pytest.raises(InvalidValueError, match=r"chatledger\.open"):
        ContextEngine(bad, "c", "u")
    with pytest.raises(InvalidValueError, match=r"chatledger\.open_async"):
        AsyncContextEngine(bad, "c", "u")


def test_the_other_kind_of_ledger_is_refused() -> None:
    """The error says which class fits."""
    with EngineWorld("sync") as here, EngineWorld("async") as there:
        with pytest.raises(InvalidValueError, match="use AsyncContextEngine"):
            ContextEngine(anything(there.beneath), "c", "u")
        with pytest.raises(InvalidValueError, match="use ContextEngine"):
            AsyncContextEngine(anything(here.beneath), "c", "u")


def test_nothing_is_written_before_first_use(world: EngineWorld) -> None:
    """Setting is no use; branch, head and chat are None until then (CE-15, CE-22)."""
    engine = world.engine(metadata={"a": 1}).set(role("guide"), user("hello"))
    engine.unset("nothing")

    assert length(world.ledger) == 0
    assert (engine.branch, engine.head_message_id, engine.chat) == (None, None, None)
    assert engine.chat_id == world.chat
    assert engine.user_id == "ada"
    assert "no branch yet" in repr(engine)


def test_first_use_creates_the_chat(world: EngineWorld) -> None:
    """With the metadata as they were given, in one event, on `main` (CE-16)."""
    given: dict[str, Any] = {"a": [1]}
    engine = world.engine(metadata=given)
    given["a"].append(2)
    engine.resolve()

    assert world.events() == ["chat_created"]
    assert engine.chat == world.ledger.get_chat(world.chat)
    assert engine.chat is not None
    assert (engine.chat.user_id, engine.chat.metadata, engine.branch) == ("ada", {"a": [1]}, "main")
    assert "main" in repr(engine)


def test_first_use_merges_metadata_once(world: EngineWorld) -> None:
    """Given keys win, others stay, nested ones are replaced as a whole; equal ones write nothing (CE-16)."""
    world.ledger.create_chat(world.chat, "ada", metadata={"a": 1, "b": {"x": 1}, "c": None})
    engine = world.engine(metadata={"b": {"y": 2}, "d": 4})
    engine.resolve()
    merged = {"a": 1, "b": {"y": 2}, "c": None, "d": 4}
    assert engine.chat is not None
    assert engine.chat.metadata == merged
    world.ledger.update_chat(world.chat, metadata={**merged, "d": 5})
    engine.resolve()
    world.engine(metadata={"d": 5}).resolve()

    assert world.ledger.get_chat(world.chat).metadata == {**merged, "d": 5}  # type: ignore[union-attr]
    assert world.events() == ["chat_created", "chat_updated", "chat_updated"]


def test_first_use_keeps_the_command_id_of_the_caller(world: EngineWorld) -> None:
    """What the caller asked for has its id, not what first use writes on the way (PS-22)."""
    world.saved(user("hello", id="m1"))
    for _ in range(2):
        with world.ledger.context(command_id="once"):
            world.engine(metadata={"a": 1}).rewind("m1")

    assert list(world.branches()) == ["main", "main-v2"]


def test_a_new_engine_adopts_the_active_branch(world: EngineWorld) -> None:
    """Wherever others left the chat (CE-16)."""
    first = world.saved(user("hello", id="m1"), assistant("hi", "m2"))
    first.rewind("m1")
    engine = world.engine()
    engine.resolve()

    assert (engine.branch, engine.head_message_id) == ("main-v2", "m1")


def test_a_deleted_chat_is_reported(world: EngineWorld) -> None:
    """Its engine raises `ChatNotFoundError`; it does not make it anew."""
    engine = world.saved(user("hello", id="m1")).set(user("more"))
    world.ledger.delete_chat(world.chat)
    for call in (engine.save, engine.resolve, engine.refresh, lambda: engine.update_chat(title="x")):
        with pytest.raises(ChatNotFoundError):
            call()

    assert len(engine.pending) == 1


# Setting


def test_set_routes_and_keeps_order(world: EngineWorld) -> None:
    """Context to the prompt, messages to the queue; the engine is returned, and the lists are copies (CE-17, CE-18)."""
    engine = world.engine()
    again = engine.set(hint("one"), user("hello", id="m1"), role("two"), assistant("hi", "m2")).set(hint("three"))
    engine.fragments.clear()
    engine.pending.clear()

    assert again is engine
    assert [one.data for one in engine.fragments] == ["one", "two", "three"]
    assert as_set(engine.pending) == [("m1", "user"), ("m2", "assistant")]


def test_context_is_copied(world: EngineWorld) -> None:
    """Later changes by the caller have no effect, at any depth (CE-18)."""
    given: dict[str, Any] = {"rules": ["one", {"deep": [1]}]}
    engine = world.engine().set(fragment("notes", given))
    given["rules"][1]["deep"].append(2)
    given["rules"].append("two")
    given["more"] = True

    assert (
        engine.resolve().system_prompt
        == world.engine().set(fragment("notes", {"rules": ["one", {"deep": [1]}]})).resolve().system_prompt
    )


def test_context_of_an_id_is_replaced_in_place(world: EngineWorld) -> None:
    """So that an author can set a fragment anew; those without an id add up."""
    engine = world.engine().set(Fragment("hint", "a", id="x"), hint("b"), Fragment("hint", "c", id="x"), hint("b"))

    assert [one.data for one in engine.fragments] == ["c", "b", "b"]


NO_FRAGMENTS: dict[str, Any] = {
    "none": None,
    "number": 5,
    "text": "text",
    "list": [user("x")],
    "neither data nor codec": {"name": "user"},
    "empty name": {"name": "", "data": "x"},
    "name of a wrong type": {"name": 5, "data": "x"},
    "draft without id": NewMessage("user", "text"),
    "message without id": Fragment("user", "x", type="message"),
    "empty id": Fragment("user", id="", type="message", codec=user("x").codec),
    "NUL in id": Fragment("user", id="a\0b", type="message", codec=user("x").codec),
    "number as id": Fragment("user", id=anything(5), type="message", codec=user("x").codec),
    "number as id of context": Fragment("hint", "x", id=anything(5)),
    "empty id of context": Fragment("hint", "x", id=""),
    "unknown type": Fragment("user", "x", id="a", type=anything("massage")),
}


@pytest.mark.parametrize("bad", NO_FRAGMENTS.values(), ids=NO_FRAGMENTS)
def test_what_is_no_fragment_is_refused(world: EngineWorld, bad: Any) -> None:
    """At once, and none of what was given with it is set: a queue with something unsavable in it would be stuck."""
    engine = world.saved(user("hello", id="m1")).set(hint("kept"), user("kept", id="m2"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError):
        engine.set(hint("new"), user("new"), bad)


def test_unset(world: EngineWorld) -> None:
    """Removes the context fragment of an id, and says whether there was one (CE-19: in the source an empty stub)."""
    engine = world.engine().set(Fragment("hint", "a", id="x"), Fragment("hint", "b", id="y"), user("hello", id="m1"))

    assert [engine.unset("x"), engine.unset("x"), engine.unset("m1")] == [True, False, False]
    assert [one.id for one in engine.fragments] == ["y"]
    assert as_set(engine.pending) == [("m1", "user")]
    assert "b" in engine.resolve().system_prompt


@pytest.mark.parametrize(
    "bad", [None, 5, "", "a\0b", Fragment("hint", "x", id="x")], ids=["none", "number", "empty", "NUL", "fragment"]
)
def test_unset_checks_the_id(world: EngineWorld, bad: Any) -> None:
    """None above all is no id: it would remove every fragment without one."""
    engine = world.saved(user("hello", id="m1")).set(hint("without id"), Fragment("hint", "with", id="x"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="fragment_id"):
        engine.unset(bad)


# Resolving


def test_resolve(world: EngineWorld) -> None:
    """The prompt in XML or as another renderer writes it, stored and pending messages in order; only the chat is stored (CE-20)."""
    engine = world.saved(user("one", id="m1"))
    engine.set(role("You plan trips."), assistant("two", "m2"), hint("Be brief"))
    with world.nothing_happens(engine):
        context = engine.resolve()
        other = engine.resolve(MarkdownRenderer())

    assert context.system_prompt == "<role>You plan trips.</role>\n<hint>Be brief</hint>"
    assert context.messages == other.messages == [data("one", "m1"), data("two", "m2", "assistant")]
    assert other.system_prompt.startswith("## Role\nYou plan trips.")
    assert engine.resolve(renderer=MarkdownRenderer()) == other


def test_a_conversation_begins(world: EngineWorld) -> None:
    """Context in order, one message, nothing stored; after a save a new engine has the same messages (acceptance CE 1)."""
    engine = world.engine()
    nothing = engine.resolve()
    assert (nothing.system_prompt, nothing.messages) == ("", [])
    engine.set(role("r"), user("Hi"), hint("h"))
    first = engine.resolve()
    assert first.system_prompt == "<role>r</role>\n<hint>h</hint>"
    assert texts(first.messages) == ["Hi"]
    assert world.events() == ["chat_created"]
    engine.save()

    assert engine.resolve() == first
    assert world.engine().resolve().messages == first.messages
    assert len(world.chain()) == 1


@pytest.mark.parametrize("form", ["", "ai-sdk", None, 5], ids=repr)
@pytest.mark.parametrize("method", ["resolve", "get_messages"])
def test_an_unknown_form_is_refused(world: EngineWorld, method: str, form: Any) -> None:
    """Before anything is read."""
    engine = world.saved(user("one", id="m1"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError):
        getattr(engine, method)(form=form)


@pytest.mark.parametrize("bad", [5, "xml", MarkdownRenderer], ids=["number", "text", "class"])
@pytest.mark.parametrize("method", ["resolve", "inspect"])
def test_what_is_no_renderer_is_refused(world: EngineWorld, method: str, bad: Any) -> None:
    """The error says what was expected."""
    engine = world.saved(user("one", id="m1")).set(hint("x"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="renderer"):
        getattr(engine, method)(renderer=bad)


class Names:
    """A renderer that shares nothing with those of the library."""

    def render(self, fragments: list[Fragment]) -> str:
        return ", ".join(fragment.name for fragment in fragments)


class Mute:
    def render(self, fragments: list[Fragment]) -> None:
        pass


def test_whatever_renders_is_a_renderer(world: EngineWorld) -> None:
    """`render(fragments) -> str` is all that is asked for (CE-35)."""
    engine = world.engine().set(role("You plan trips."), hint("Use UTC"))

    assert engine.resolve(Names()).system_prompt == engine.inspect(renderer=Names())["rendered"] == "role, hint"
    with pytest.raises(InvalidValueError, match="renderer Mute must return text, not NoneType"):
        engine.resolve(anything(Mute()))


def test_openai_form(world: EngineWorld) -> None:
    """The same messages in another form, stored or pending."""
    engine = world.saved(user("one", id="m1")).set(assistant("two", "m2"))

    assert [one["role"] for one in engine.resolve(form="openai").messages] == ["user", "assistant"]
    assert engine.resolve(form="openai").messages == engine.get_messages(form="openai")


def test_stored_data_of_any_shape_are_resolved(world: EngineWorld) -> None:
    """Also what no UIMessage is, as an import may have left it: text by its role, other JSON as text."""
    engine = world.engine()
    engine.save()
    world.ledger.append(world.chat, [NewMessage("note", value) for value in (None, 1, "text", [1], {"a": None})])

    assert [one["parts"][0]["text"] for one in engine.resolve().messages] == ["1", "text", "[1]", '{"a":null}']
    assert engine.resolve(form="openai").messages[1] == {"role": "user", "name": "note", "content": "text"}


def test_a_pending_edit_stands_for_what_it_edits(world: EngineWorld) -> None:
    """
    Without what came after it; after the save the messages are the same, but for the new id (CE-21, acceptance CE 4).

    The source returns old and edited message. What is pending and identical is there once (SM-47).
    """
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"), user("three", id="m3"))
    engine.set(user("one", id="m1"), assistant("two, better", "m2"), user("and then", id="n1"))
    with world.nothing_happens(engine):
        before = engine.resolve()
    assert texts(before.messages) == ["one", "two, better", "and then"]
    engine.save()

    assert engine.resolve() == before
    assert engine.branch == "main-v2"


def test_resolve_shows_what_others_added(world: EngineWorld) -> None:
    """The head is read anew each time (SM-30: the source caches it)."""
    engine = world.saved(user("one", id="m1"))
    world.engine().set(assistant("two", "m2")).save()

    assert shown(engine) == ["one", "two"]
    assert engine.head_message_id == "m2"


def test_what_a_save_would_refuse_resolve_refuses(world: EngineWorld) -> None:
    """A fragment without a codec: an error from both, and it stays pending."""
    engine = world.saved(user("one", id="m1")).set(Fragment("user", "x", id="m2", type="message"))
    for call in (engine.resolve, engine.get_messages, engine.turn_count, engine.inspect):
        with world.nothing_happens(engine), pytest.raises(MissingCodecError, match="'m2'"):
            call()


# Questions


def test_messages_for_a_model_leave_out_hollow_ones(world: EngineWorld) -> None:
    """Messages without parts, stored or pending: no model takes them (CE-24; ai `validateUIMessages`)."""
    hollow: dict[str, Any] = {"role": "assistant", "parts": []}
    engine = world.saved(
        user("one", id="m1"), message({**hollow, "id": "m2"}), user({"role": "user", "parts": []}, id="m3")
    )
    engine.set(message({**hollow, "id": "m4"}), assistant("five", "m5"))

    assert [one["id"] for one in engine.get_messages()] == ["m1", "m5"]
    assert [one["id"] for one in engine.resolve().messages] == ["m1", "m5"]


def test_head_message(world: EngineWorld) -> None:
    """The last pending message, else the stored head, else None (CE-23)."""
    engine = world.engine()
    assert engine.head_message() is None
    engine.set(user("one", id="m1"), assistant("two", "m2"))
    assert engine.head_message() == Head(id="m2", name="assistant")
    engine.save()
    assert engine.head_message() == Head(id="m2", name="assistant")
    world.engine().set(user("three", id="m3")).save()

    assert engine.head_message() == Head(id="m3", name="user")


def test_a_lazy_head_has_no_id(world: EngineWorld) -> None:
    """An error, for nothing can be said of it before it is resolved (CE-23)."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2")).set(last_assistant_message("better"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="has no id"):
        engine.head_message()


def test_first_user_message(world: EngineWorld) -> None:
    """Of the conversation as it stands, stored or pending; reminders that a program put in do not count (CE-23)."""
    synthetic: dict[str, Any] = {"role": "user", "parts": [], "metadata": {"synthetic": {"kind": "reminder"}}}
    engine = world.engine().set(assistant("welcome", "m0"), user(synthetic, id="s1"))
    assert engine.first_user_message() is None
    engine.set(user("one", id="m1"), user("two", id="m2"))
    pending = engine.first_user_message()
    engine.save()
    stored = engine.first_user_message()

    assert pending is not None
    assert stored is not None
    assert pending.id == stored.id == "m1"
    assert stored == world.message("m1")


def test_turn_count(world: EngineWorld) -> None:
    """User messages, stored and pending, those of programs left out; an edited one counts once (CE-23)."""
    synthetic: dict[str, Any] = {"role": "user", "parts": [], "metadata": {"synthetic": {"kind": "reminder"}}}
    engine = world.engine()
    counts = [engine.turn_count()]
    engine.set(user("one", id="m1"), assistant("a", "m2"))
    counts.append(engine.turn_count())
    engine.save()
    engine.set(user(synthetic), user("two", id="m3"))
    counts.append(engine.turn_count())
    engine.save()
    engine.set(user("one, better", id="m1"))
    counts.append(engine.turn_count())

    assert counts == [0, 1, 2, 1]


# Turns


def test_continue_turn(world: EngineWorld) -> None:
    """
    The input is saved, and an id comes back under which nothing is stored; the answer is an ordinary append (CE-25).

    The source stores an empty placeholder and fills it in place.
    """
    engine = world.engine()
    answer_id = engine.continue_turn("hello")
    events = world.events()

    assert shown(engine) == ["hello"]
    assert world.ledger.get_message(answer_id) is None
    assert events == ["chat_created", "message_appended"]
    result = engine.set(assistant("hi", answer_id)).save()
    assert (result.branch, result.id_map, result.head_message_id) == ("main", {}, answer_id)
    assert world.message(answer_id).data == data("hi", answer_id, "assistant")


def test_a_second_answer_is_an_edit(world: EngineWorld) -> None:
    """Under the same id with other content; with equal content it is skipped (CE-25)."""
    engine = world.engine()
    answer_id = engine.continue_turn("hello")
    engine.set(assistant("hi", answer_id)).save()
    same = engine.set(assistant("hi", answer_id)).save()
    other = engine.set(assistant("good day", answer_id)).save()

    assert (same.branch, same.id_map) == ("main", {})
    assert list(other.id_map) == [answer_id]
    assert other.branch == "main-v2"
    assert shown(engine) == ["hello", "good day"]


def test_continue_turn_takes_messages(world: EngineWorld) -> None:
    """A UIMessage, a fragment, and an answer that goes on, whose id is that under which it is stored (CE-25)."""
    engine = world.engine()
    first = engine.continue_turn(data("one", "m1"))
    second = engine.continue_turn(user("two", id="m2"))
    same = engine.continue_turn(assistant("answer", "a1"))
    edited = engine.continue_turn({"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "longer"}]})

    assert len({first, second, "m1", "m2", "a1"}) == 5
    assert same == "a1"
    assert edited != "a1"
    assert engine.resolve().messages[-1] == data("longer", edited, "assistant")
    assert world.chain("main") == ["m1", "m2", "a1"]


NO_TURNS: dict[str, Any] = {
    "assistant without id": {"role": "assistant", "parts": []},
    "system": {"role": "system", "parts": []},
    "system with id": {"role": "system", "parts": [], "id": "s"},
    "no parts": {"role": "user"},
    "empty id": {"role": "user", "parts": [], "id": ""},
    "number as id": {"role": "user", "parts": [], "id": 5},
    "lazy": last_assistant_message("x"),
    "context": hint("x"),
    "none": None,
    "number": 5,
    "list": [user("x")],
}


@pytest.mark.parametrize("bad", NO_TURNS.values(), ids=NO_TURNS)
def test_what_continues_no_turn_is_refused(world: EngineWorld, bad: Any) -> None:
    """Nothing is set and nothing saved; the message speaks of what to give (CE-25)."""
    engine = world.saved(user("one", id="m1")).set(user("waiting", id="m2"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError):
        engine.continue_turn(bad)


# Forms


CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
}
THOUGHT: dict[str, Any] = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "Hm", "signature": "EqQB"}, {"type": "text", "text": "Rain."}],
}


def test_a_call_that_nobody_answered(world: EngineWorld) -> None:
    """As a run that was stopped leaves it: answered, left out, or kept for who answers it."""
    engine = world.saved(user("one", id="m1"), CALL)

    assert {"role": "tool", "tool_call_id": "call_1", "content": "interrupted"} == engine.get_messages(form="openai")[
        -1
    ]
    assert ["user"] == [one["role"] for one in engine.resolve(form="openai", open_calls="drop").messages]
    assert CALL == engine.resolve(form="openai", open_calls="keep").messages[-1]


def test_what_is_left_out_is_named_or_refused(world: EngineWorld) -> None:
    """In the form that it came in, there is nothing to leave out."""
    engine = world.saved(user("one", id="m1"), THOUGHT)

    assert [("reasoning", "signed by anthropic")] == [
        (one.what, one.why) for one in engine.resolve(form="openai").dropped
    ]
    assert [] == engine.resolve(form="anthropic", strict=True).dropped
    with pytest.raises(TranslationError, match=r"reasoning in message .* 'openai': signed by anthropic") as raised:
        engine.resolve(form="openai", strict=True)
    assert pickle.loads(pickle.dumps(raised.value)).what == "reasoning"


class Sealed:
    """A codec whose stored form is not what models get."""

    def encode(self) -> Any:
        return {"sealed": "ennO"}

    def decode(self) -> Any:
        return {"role": "user", "content": "One"}


def test_a_codec_decodes_what_is_pending(world: EngineWorld) -> None:
    """`decode()` says what a model gets as long as the message is pending; what is stored has no codec any more (CE-20)."""
    engine = world.engine().set(Fragment("user", None, id="m1", type="message", persist=True, codec=Sealed()))

    assert [{"role": "user", "content": "One"}] == engine.resolve(form="openai").messages
    engine.save()
    assert [{"role": "user", "content": '{"sealed":"ennO"}'}] == engine.resolve(form="openai").messages
