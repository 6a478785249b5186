"""Saving with a context engine: what is stored, where, and what the engine says of it (SM-36 to SM-48)."""

import itertools
import uuid
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from tests.support.engine_world import USER, EngineWorld, as_set, data, shown
from tests.support.ledger_world import length

from chatledger import (
    Fragment,
    HeadConflictError,
    InvalidValueError,
    Message,
    NewMessage,
    SaveResult,
    assistant,
    message,
    user,
)
from chatledger.domain.log.large_data import MAX_MESSAGE_BYTES
from chatledger.errors import (
    AmbiguousEditError,
    MissingCodecError,
    OwnerMismatchError,
    PayloadTooLargeError,
    ResolverError,
    WrongChatError,
)
from chatledger.forms import Form, Writer
from chatledger.fragments import hint, last_assistant_message
from chatledger.tokens import ModelInfo


def five() -> list[Fragment]:
    """A chain m1 .. m5, users and assistants in turn."""
    return [(user if number % 2 else assistant)(f"text {number}", id=f"m{number}") for number in range(1, 6)]


# New messages


def test_nothing_pending_saves_nothing(world: EngineWorld) -> None:
    """No event; the result names the head that the branch has now, whoever moved it, None on an empty one (SM-30, SM-37)."""
    engine = world.engine()
    empty = engine.save()
    created = world.events()
    engine.set(user("hello", id="m1")).save()
    events = length(world.ledger)

    assert empty == SaveResult(head_message_id=None, branch="main", message_ids=[], id_map={})
    assert created == ["chat_created"]
    assert engine.save() == SaveResult(head_message_id="m1", branch="main", message_ids=[], id_map={})
    assert length(world.ledger) == events
    world.engine().set(user("more", id="m2")).save()
    assert engine.save().head_message_id == engine.head_message_id == "m2"


def test_new_messages_are_chained_in_order(world: EngineWorld) -> None:
    """Each is the parent of the next; the first follows the head (SM-36)."""
    engine = world.saved(user("one", id="m1"))
    result = engine.set(assistant("two", "m2"), user("three", id="m3")).save()

    assert result == SaveResult(head_message_id="m3", branch="main", message_ids=["m2", "m3"], id_map={})
    assert [(one.id, one.parent_id) for one in world.ledger.get_messages(world.chat)] == [
        ("m1", None),
        ("m2", "m1"),
        ("m3", "m2"),
    ]
    assert engine.pending == []
    assert engine.head_message_id == "m3"


def test_a_save_is_one_commit(world: EngineWorld) -> None:
    """Whatever the number of messages: one event for new ones, two in one commit for an edit's branch (SM-39)."""
    engine = world.engine()
    engine.save()
    engine.set(*(user(str(number), id=f"n{number}") for number in range(100))).save()

    assert world.events() == ["chat_created", "message_appended"]
    engine.set(user("edited", id="n50"), user("more")).save()
    assert world.events() == ["chat_created", "message_appended", "branch_created", "message_appended"]
    assert world.ledger.get_branch(world.chat, "main-v2") == world.ledger.get_active_branch(world.chat)


def test_what_is_stored(world: EngineWorld) -> None:
    """Id, name, type and data of the fragment; all messages of one save share one time (SM-38)."""
    engine = world.engine().set(
        user("hello", id="m1", sender_id="bob"),
        assistant({"role": "assistant", "parts": [{"type": "tool-x", "input": None}], "metadata": {"a": 1}}, "m2"),
        message({"role": "system", "parts": []}),
    )
    engine.save()
    one, two, three = world.ledger.get_messages(world.chat)

    assert (one.id, one.name, one.type, one.data, one.sender_id) == (
        "m1",
        "user",
        "message",
        data("hello", "m1"),
        "bob",
    )
    assert (two.name, two.type) == ("assistant", "message")
    assert two.data["metadata"] == {"a": 1}
    assert (three.name, three.data["id"]) == ("system", three.id)
    assert uuid.UUID(three.id)
    assert one.created_at == two.created_at == three.created_at


class Shouting:
    """A codec whose storage form differs from its model form."""

    def encode(self) -> Any:
        return {"quiet": "hello"}

    def decode(self) -> Any:
        return "HELLO"


def test_the_storage_form_is_stored() -> None:
    """`data` is what `codec.encode()` gives (SM-38)."""
    with EngineWorld("sync") as world:
        world.saved(Fragment("note", id="m1", type="message", persist=True, codec=Shouting()))

        assert world.message("m1").data == {"quiet": "hello"}
        assert world.message("m1").name == "note"


def test_null_is_data_like_any_other(world: EngineWorld) -> None:
    """Data may be null, also in the graph (SM-3: the source's export breaks)."""
    engine = world.saved(NewMessage("note", None, id="m1"), user("x", id="m2"))

    assert world.message("m1").data is None
    assert [node.content for node in world.ledger.graph(world.chat).nodes] == ["null", "x"]
    assert engine.inspect()["graph"]["nodes"][0]["content"] == "null"


def test_a_message_without_codec_is_refused(world: EngineWorld) -> None:
    """`MissingCodecError` names it; it stays pending with the others, and nothing is stored (SM-38, SM-40)."""
    engine = world.saved(user("hello", id="m1"))
    engine.set(user("fine", id="m2"), Fragment("user", "text", id="m3", type="message", persist=True))
    with world.nothing_happens(engine), pytest.raises(MissingCodecError, match="'m3'"):
        engine.save()

    assert as_set(engine.pending) == [("m2", "user"), ("m3", "user")]


def test_discard(world: EngineWorld) -> None:
    """What waits is dropped and returned; what is stored, and the context, stay. A queue that cannot be saved is free again."""
    engine = world.saved(user("hello", id="m1")).set(hint("stay"))
    assert engine.discard() == []
    engine.set(user("fine", id="m2"), Fragment("user", "text", id="m3", type="message"))
    with world.nothing_happens(world.engine()):
        assert as_set(engine.discard()) == [("m2", "user"), ("m3", "user")]
    assert engine.pending == []
    assert len(engine.fragments) == 1
    engine.set(user("more", id="m4")).save()

    assert world.branches() == {"main": ["m1", "m4"]}


# Edits


@pytest.mark.parametrize(
    ("pending", "chain"),
    [
        ([assistant("edited", "m2")], ["m1", "m2'"]),
        ([assistant("edited 2", "m2"), assistant("edited 4", "m4")], ["m1", "m2'", "m4'"]),
        ([user("another", id="m1"), assistant("answer", "a1", reply_to="m1")], ["m1'", "a1"]),
        ([user("new", id="n1"), assistant("late", "m4"), assistant("early", "m2")], ["m1", "n1", "m4'", "m2'"]),
    ],
    ids=["one", "two", "root with an answer", "beside new ones"],
)
def test_edits_make_one_branch_at_the_first_parent(
    world: EngineWorld, pending: list[Fragment], chain: list[str]
) -> None:
    """
    All that waits follows the fork point in the order of the queue, edits under new ids (SM-41, SM-42, acceptance SM 2, 3).

    The source forks for the first edit only, and overwrites other originals and roots.
    """
    engine = world.saved(*five())
    originals = world.ledger.get_messages(world.chat)
    result = engine.set(*pending).save()
    stored = [result.id_map[one.removesuffix("'")] if one.endswith("'") else one for one in chain]

    assert world.branches() == {"main": ["m1", "m2", "m3", "m4", "m5"], "main-v2": stored}
    assert world.ledger.get_messages(world.chat, branch="main") == originals
    assert world.active() == engine.branch == result.branch == "main-v2"
    assert (result.head_message_id, result.message_ids) == (stored[-1], stored[-len(pending) :])
    assert not {*result.id_map.values()} & {"m1", "m2", "m3", "m4", "m5"}
    assert [world.message(one).reply_to for one in stored[-len(pending) :]] == [
        result.id_map.get(one.metadata.get("reply_to") or "") for one in pending
    ]
    assert len(shown(engine)) == len(chain)


def test_edits_on_two_chains_are_ambiguous(world: EngineWorld) -> None:
    """`AmbiguousEditError` names both; nothing is written and all stays pending (SM-44)."""
    engine = world.saved(*five()[:3])
    engine.rewind("m1")
    engine.set(user("aside", id="x1")).save()
    engine.set(user("edited", id="m3"), user("edited too", id="x1"))
    with world.nothing_happens(engine), pytest.raises(AmbiguousEditError, match="'m3' and 'x1'"):
        engine.save()
    with world.nothing_happens(engine), pytest.raises(AmbiguousEditError, match="one by one"):
        engine.resolve()


@pytest.mark.parametrize("kind", ["message", "fragment", None], ids=str)
def test_a_message_that_was_read_is_no_edit(world: EngineWorld, kind: str | None) -> None:
    """Whatever its type: what is stored is set again and skipped (SM-47, CE-7)."""
    engine = world.engine()
    engine.save()
    world.ledger.append(world.chat, [NewMessage("note", 1, id="m1", type=kind, sender_id="bob")])

    assert engine.set(message(world.message("m1"))).save().id_map == {}
    assert engine.set(world.message("m1")).save().id_map == {}
    assert world.branches() == {"main": ["m1"]}
    edited = engine.set(NewMessage("note", 2, id="m1")).save()
    assert world.message(edited.id_map["m1"]).data == 2


# Equal messages and equal ids


def test_an_identical_message_of_the_chain_is_skipped(world: EngineWorld) -> None:
    """No event; the result names the message as stored (SM-47)."""
    engine = world.saved(*five()[:3])
    events = length(world.ledger)
    result = engine.set(*five()[:2]).save()

    assert result == SaveResult(head_message_id="m3", branch="main", message_ids=["m1", "m2"], id_map={})
    assert length(world.ledger) == events
    assert engine.pending == []


def test_the_later_of_two_pending_messages_counts(world: EngineWorld) -> None:
    """It takes the place of the earlier one in the queue; there is no edit (SM-47)."""
    engine = world.engine().set(user("one", id="m1"), user("two", id="m2"), user("one again", id="m1"))

    assert shown(engine) == ["one again", "two"]
    result = engine.save()
    assert world.chain() == ["m1", "m2"]
    assert world.message("m1").data == data("one again", "m1")
    assert result.message_ids == ["m1", "m2"]
    assert engine.pending == []


# Other chats and other users


def test_an_id_of_another_chat_is_refused(world: EngineWorld) -> None:
    """
    `WrongChatError`; neither chat changes (SM-7, SM-46).

    The source overwrites the message of the other chat.
    """
    world.saved(user("hello", id="m1"))
    other = world.engine("other").set(user("fine", id="n1"))
    other.save()
    other.set(user("new", id="n2"), user("taken", id="m1"))
    with world.nothing_happens(other), pytest.raises(WrongChatError, match="'m1' does not belong to chat 'other'"):
        other.save()

    assert as_set(other.pending) == [("n2", "user"), ("m1", "user")]
    assert world.chain(chat_id="other") == ["n1"]
    assert world.message("m1").data == data("hello", "m1")


def test_a_chat_of_another_user_is_refused(world: EngineWorld) -> None:
    """`OwnerMismatchError` whatever is done, nothing is written, and no user is named (CE-16)."""
    world.saved(user("hello", id="m1"))
    mallory = world.engine(user_id="mallory", metadata={"a": 1}).set(user("hi"))
    for call in (mallory.save, mallory.resolve, lambda: mallory.rewind("m1"), lambda: mallory.update_chat(title="x")):
        with world.nothing_happens(mallory), pytest.raises(OwnerMismatchError) as caught:
            call()
        said = str(caught.value).replace(world.chat, "")  # which is drawn, and may have any letters
        assert "mallory" not in said
        assert USER not in said
    assert len(mallory.pending) == 1


# Values that cannot be stored


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda: user({"role": "user", "parts": [b""]}, id="bad"), "bytes"),
        (lambda: user("x", id="bad", sender_id="\ud800"), "surrogate"),
        (lambda: user({"role": "user", "parts": [10**4300]}, id="bad"), "digits"),
        (lambda: user("x", id="bad", sender_id=""), "empty"),
        (lambda: NewMessage("x" * 2049, 1, id="bad"), "2,049 bytes"),
        (lambda: user("x", id="bad", reply_to="nowhere"), "'nowhere'"),
    ],
    ids=["bytes", "surrogate", "large integer", "empty sender", "long name", "unknown reply_to"],
)
def test_what_cannot_be_stored_stays_pending(world: EngineWorld, bad: Any, says: str) -> None:
    """The error says why; nothing of the save is stored, and all of it waits in order (SM-40)."""
    from chatledger import ChatledgerError

    engine = world.saved(user("hello", id="m1"))
    try:
        engine.set(user("fine", id="m2"), bad(), user("fine too", id="m3"))
    except InvalidValueError as error:
        assert says in str(error)  # noqa: PT017 - some are seen at once, and nothing is set
        assert engine.pending == []
        return
    with world.nothing_happens(engine), pytest.raises(ChatledgerError, match=says):
        engine.save()

    assert [one.id for one in engine.pending] == ["m2", "bad", "m3"]


@pytest.mark.soak
def test_a_large_save_is_split_but_whole() -> None:
    """A save of more than one event's worth is still one commit; a single message that is too large is refused."""
    with EngineWorld("sync") as world:
        engine = world.engine().set(*(user("x" * 500_000, id=f"m{number}") for number in range(5)))
        engine.save()
        with pytest.raises(PayloadTooLargeError):
            engine.set(user("small", id="s"), user("x" * MAX_MESSAGE_BYTES, id="large")).save()

        assert world.chain() == [f"m{number}" for number in range(5)]
        assert len(engine.pending) == 2


# Messages in other shapes


def test_messages_of_all_shapes_are_saved(world: EngineWorld) -> None:
    """Fragments, objects of their shape, drafts, and messages that were read."""
    stored = Message(id="m3", name="user", data=data("three", "m3"), form="ui", created_at=1, chat_id="elsewhere")
    shaped: dict[str, Any] = {"name": "user", "type": "message", "id": "m4", "codec": user("four", id="m4").codec}
    world.saved(user("one", id="m1"), NewMessage("user", data("two", "m2"), id="m2"), stored, shaped)

    assert world.chain() == ["m1", "m2", "m3", "m4"]
    assert shown(world.engine()) == ["one", "two", "three", "four"]


# When others write


def behind(world: EngineWorld) -> Any:
    """An engine that has seen m1, on a branch that is at m2 now, with n1 pending."""
    engine = world.saved(user("hello", id="m1"))
    world.engine().set(assistant("by another", "m2")).save()
    return engine.set(user("late", id="n1"))


def test_rebase_chains_onto_what_others_added(world: EngineWorld) -> None:
    """The default (SM-48)."""
    behind(world).save(on_conflict="rebase")

    assert world.branches() == {"main": ["m1", "m2", "n1"]}


def test_fork_makes_a_branch_where_the_engine_stood(world: EngineWorld) -> None:
    """Named by the rule, active, and the engine is on it."""
    engine = behind(world)
    result = engine.save(on_conflict="fork")

    assert world.branches() == {"main": ["m1", "m2"], "main-v2": ["m1", "n1"]}
    assert engine.branch == world.active() == result.branch == "main-v2"
    assert result.id_map == {}


def test_raise_refuses(world: EngineWorld) -> None:
    """`HeadConflictError` says where the branch is; after a look at it the save goes through."""
    engine = behind(world)
    with world.nothing_happens(engine), pytest.raises(HeadConflictError) as caught:
        engine.save(on_conflict="raise")
    assert (caught.value.expected, caught.value.actual, caught.value.branch) == ("m1", "m2", "main")

    assert shown(engine) == ["hello", "by another", "late"]
    engine.save(on_conflict="raise")
    assert world.branches() == {"main": ["m1", "m2", "n1"]}


@pytest.mark.parametrize("on_conflict", ["", "merge", None, 1, ["fork"]], ids=repr)
@pytest.mark.parametrize("is_pending", [True, False], ids=["pending", "nothing pending"])
def test_an_unknown_way_out_is_refused(world: EngineWorld, on_conflict: Any, is_pending: bool) -> None:  # noqa: FBT001 - a parameter
    """The error names those that there are, also when nothing is pending."""
    engine = world.saved(user("hello", id="m1"))
    if is_pending:
        engine.set(user("more"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="rebase, fork, raise"):
        engine.save(on_conflict=on_conflict)


def test_five_lost_swaps_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then `HeadConflictError`; nothing is stored, the messages wait with their ids, and a later save goes through (SM-48)."""
    from tests.support.ledger_world import internals

    from chatledger.infra.log.port import LostRaceError

    with EngineWorld("sync") as world:
        engine = world.saved(user("hello", id="m1"))
        rival = world.engine()
        log, numbers = internals(world.ledger).log, itertools.count(1)
        append, is_rival, tries = log.append, False, 0

        def outrun(*args: Any, **kwargs: Any) -> list[int]:
            nonlocal is_rival, tries
            if is_rival:
                return append(*args, **kwargs)  # type: ignore[no-any-return]
            tries += 1
            is_rival = True
            rival.set(user("first!", id=f"r{next(numbers)}")).save()
            is_rival = False
            raise LostRaceError

        monkeypatch.setattr(log, "append", outrun)
        engine.set(user("late", id="n1"), assistant("answer", "n2"))
        with pytest.raises(HeadConflictError) as caught:
            engine.save()
        monkeypatch.undo()

        assert tries == 5
        assert caught.value.actual == "r5"
        assert world.chain() == ["m1", "r1", "r2", "r3", "r4", "r5"]
        assert world.ledger.get_message("n1") is None
        assert as_set(engine.pending) == [("n1", "user"), ("n2", "assistant")]
        engine.save()
        assert world.chain()[-3:] == ["r5", "n1", "n2"]


def test_lazy_content_that_is_no_text_is_refused(world: EngineWorld) -> None:
    """At once, when it is made (CE-11)."""
    anything: Any = 5
    with pytest.raises(InvalidValueError, match="must be text, not int"):
        last_assistant_message(anything)


def test_what_was_set_is_the_engines_own(world: EngineWorld) -> None:
    """Neither what was given nor what an engine shows of it is a way to change it."""
    given: dict[str, Any] = {
        "role": "user",
        "parts": [{"type": "text", "text": "one", "meta": {"a": [1]}}],
        "metadata": {"b": [1]},
    }
    fragments = [user(given, id="m1"), Fragment("rules", {"a": [1]}, id="r", metadata={"c": 1})]
    drafts = [NewMessage("assistant", {**given, "role": "assistant"}, id="a1")]
    before = deepcopy((given, drafts[0].data))
    engine = world.engine().set(*fragments, *drafts)
    given["parts"][0]["meta"]["a"].append("HACK")
    for held in (*fragments, *engine.pending, *engine.fragments):
        if held.codec is not None:
            held.codec.decode()["parts"][0]["text"] = "HACK"
            held.codec.decode()["metadata"]["b"].append("HACK")
        else:
            held.data["a"].append("HACK")
        held.metadata["c"] = "HACK"
    drafts[0].data["parts"].clear()
    shown, prompt = engine.resolve().messages, engine.resolve().system_prompt
    engine.save()

    assert shown == [{"id": "m1", **before[0]}, {"id": "a1", **before[1]}]
    assert prompt == "<rules>\n  <a>\n    <a>1</a>\n  </a>\n</rules>"
    assert [world.message(one).data for one in ("m1", "a1")] == [shown[0], before[1]]
    assert engine.fragments == [Fragment("rules", {"a": [1]}, id="r", metadata={"c": 1})]


class BrokenCodec:
    """A codec that fails until it is mended."""

    is_broken = True

    def encode(self) -> Any:
        if self.is_broken:
            msg = "secret"
            raise ZeroDivisionError(msg)
        return {"role": "user", "parts": []}

    decode = encode


@pytest.mark.parametrize("method", ["save", "resolve", "get_messages", "turn_count"])
def test_errors_of_message_codecs_are_ours(world: EngineWorld, method: str) -> None:
    """They say which message it was, quote nothing, and what was pending is pending."""
    codec = BrokenCodec()
    odd = Fragment("user", id="m2", type="message", persist=True, codec=codec)
    engine = world.saved(user("one", id="m1")).set(odd, assistant("answer", "a1"))
    with world.nothing_happens(engine), pytest.raises(ResolverError, match="codec at user 'm2' raised Zero") as raised:
        getattr(engine, method)()
    assert (raised.value.path, type(raised.value.__cause__)) == ("user 'm2'", ZeroDivisionError)
    assert "secret" not in str(raised.value)
    codec.is_broken = False
    engine.save()

    assert world.chain() == ["m1", "m2", "a1"]


def test_errors_of_tokenizers_formats_and_renderers_are_ours(world: EngineWorld) -> None:
    """With the fragment or message they were about; errors of ours stay what they are."""

    def broken(*_: Any) -> Any:
        msg = "secret"
        raise KeyError(msg)

    engine = world.saved(user("one", id="m1")).set(Fragment("rules", "x", id="r"))
    models = {"m": ModelInfo(provider="p", input_price=1.0, context=10, output=10)}
    with pytest.raises(ResolverError, match="the tokenizer at rules 'r' raised KeyError") as raised:
        engine.estimate("m", models=models, tokenizer=broken)
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(InvalidValueError, match="the result of the tokenizer"):
        engine.estimate("m", models=models, tokenizer=lambda _: -1)
    with pytest.raises(ResolverError, match="the form at mine raised KeyError"):
        engine.resolve(form=Form(name="mine", read=broken, write=type("Broken", (Writer,), {"write": broken})))
    with pytest.raises(ResolverError, match="the form at mine raised KeyError"):
        engine.resolve(
            form=Form(name="mine", read=broken, write=type("Idle", (Writer,), {"write": bool}), decode=broken)
        )
    for method in (engine.resolve, partial(engine.resolve, cache="openai"), partial(engine.inspect, None)):
        with pytest.raises(ResolverError, match="the renderer at Broken raised KeyError"):
            method(Broken())


class Broken:
    def render(self, fragments: list[Fragment], /) -> str:
        raise KeyError(fragments[0].name)
