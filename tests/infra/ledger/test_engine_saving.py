"""Saving with a context engine: what is stored, where, and what the engine says of it (SM-36 to SM-48)."""

import itertools
import uuid
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
    WrongChatError,
)
from chatledger.fragments import hint, last_assistant_message


def five() -> list[Fragment]:
    """A chain m1 .. m5, users and assistants in turn."""
    return [(user if number % 2 else assistant)(f"text {number}", id=f"m{number}") for number in range(1, 6)]


# New messages


def test_nothing_pending_saves_nothing(world: EngineWorld) -> None:
    """No event, no head; the result names the present head, None on an empty branch (SM-37)."""
    engine = world.engine()
    empty = engine.save()
    created = world.events()
    engine.set(user("hello", id="m1")).save()
    events = length(world.ledger)

    assert empty == SaveResult(head_message_id=None, branch="main", message_ids=[], id_map={})
    assert created == ["chat_created"]
    assert engine.save() == SaveResult(head_message_id="m1", branch="main", message_ids=[], id_map={})
    assert length(world.ledger) == events


def test_nothing_pending_names_the_head_that_others_made(world: EngineWorld) -> None:
    """The present head of the branch, not the one that the engine saw last (SM-30, SM-37)."""
    engine = world.saved(user("hello", id="m1"))
    world.engine().set(user("more", id="m2")).save()

    assert engine.save().head_message_id == "m2"
    assert engine.head_message_id == "m2"


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


def test_an_edit_makes_a_branch_at_its_parent(world: EngineWorld) -> None:
    """`main` is unchanged, `main-v2: m1 <- m2'` is active, with a new id (the example after SM-48)."""
    engine = world.saved(*five()[:3])
    result = engine.set(assistant("edited", "m2")).save()
    new = result.id_map["m2"]

    assert world.branches() == {"main": ["m1", "m2", "m3"], "main-v2": ["m1", new]}
    assert world.active() == engine.branch == result.branch == "main-v2"
    assert result == SaveResult(head_message_id=new, branch="main-v2", message_ids=[new], id_map={"m2": new})
    assert new not in {"m1", "m2", "m3"}


def test_edits_of_one_save_make_one_branch(world: EngineWorld) -> None:
    """
    Edits of m2 and m4 on m1..m5 read [m1, m2', m4'], and all five originals are unchanged (SM-41, acceptance SM 3).

    The source forks for the first edit only, and overwrites the other originals.
    """
    engine = world.saved(*five())
    originals = world.ledger.get_messages(world.chat)
    result = engine.set(assistant("edited 2", "m2"), assistant("edited 4", "m4")).save()

    assert list(world.branches()) == ["main", "main-v2"]
    assert world.chain("main-v2") == ["m1", result.id_map["m2"], result.id_map["m4"]]
    assert world.ledger.get_messages(world.chat, branch="main") == originals
    assert shown(engine) == ["text 1", "edited 2", "edited 4"]


def test_an_edited_root_becomes_another_root(world: EngineWorld) -> None:
    """
    `main` stays whole, `main-v2` has one new root, the original reads as it did (SM-42, acceptance SM 2).

    The source overwrites the root in place, makes no branch, and leaves the rest on no branch.
    """
    engine = world.saved(*five()[:3])
    original = world.message("m1")
    new = engine.set(user("another", id="m1")).save().id_map["m1"]

    assert world.branches() == {"main": ["m1", "m2", "m3"], "main-v2": [new]}
    assert world.message("m1") == original
    assert world.message(new).parent_id is None
    assert shown(engine) == ["another"]


def test_edited_and_new_messages_keep_their_order(world: EngineWorld) -> None:
    """All pending messages follow the fork point in queue order, also edits in another order than stored (SM-41)."""
    engine = world.saved(*five())
    result = engine.set(user("new", id="n1"), assistant("late", "m4"), assistant("early", "m2")).save()

    assert result.message_ids == ["n1", result.id_map["m4"], result.id_map["m2"]]
    assert world.chain("main-v2") == ["m1", *result.message_ids]
    assert world.chain("main") == ["m1", "m2", "m3", "m4", "m5"]


def test_nothing_is_copied(world: EngineWorld) -> None:
    """What was not edited stays on the old branch only; there is one message more than before (SM-43)."""
    engine = world.saved(*five())
    engine.set(assistant("edited", "m2")).save()
    chat = world.ledger.get_chat(world.chat)

    assert chat is not None
    assert chat.message_count == 6


def test_an_edit_elsewhere_forks_at_its_own_parent(world: EngineWorld) -> None:
    """A message that another branch has (SM-44)."""
    engine = world.saved(*five()[:3])
    engine.rewind("m1")
    engine.set(user("aside", id="x1")).save()
    result = engine.set(user("edited", id="m3")).save()

    assert world.chain("main-v2") == ["m1", "x1"]
    assert world.chain(result.branch) == ["m1", "m2", result.id_map["m3"]]
    assert result.branch == "main-v2-v2"


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


def test_the_new_id_is_in_the_data_too(world: EngineWorld) -> None:
    """Row and data have one id (SM-45: in the source they differ)."""
    engine = world.saved(user("hello", id="m1"))
    new = engine.set(user("edited", id="m1")).save().id_map["m1"]

    assert world.message(new).data == data("edited", new)
    assert world.message("m1").data == data("hello", "m1")


@pytest.mark.parametrize(
    "edited",
    [user("other", id="m1"), assistant("hello", "m1"), user("hello", id="m1", sender_id="bob")],
    ids=["data", "name", "attribution"],
)
def test_what_an_edit_is(world: EngineWorld, edited: Fragment) -> None:
    """Other data, another name or attribution (SM-41)."""
    engine = world.saved(user("hello", id="m1"))
    result = engine.set(edited).save()

    assert list(result.id_map) == ["m1"]
    assert result.branch == "main-v2"


def test_another_type_is_an_edit(world: EngineWorld) -> None:
    """The type counts as content, too (SM-41)."""
    engine = world.engine()
    engine.save()
    world.ledger.append(world.chat, [NewMessage("note", 1, id="m1", type=None)])

    assert engine.set(NewMessage("note", 1, id="m1")).save().branch == "main-v2"


@pytest.mark.parametrize("kind", ["message", "fragment", None], ids=str)
def test_a_message_that_was_read_is_no_edit(world: EngineWorld, kind: str | None) -> None:
    """Whatever its type: what is stored is set again and skipped (SM-47, CE-7)."""
    engine = world.engine()
    engine.save()
    world.ledger.append(world.chat, [NewMessage("note", 1, id="m1", type=kind, sender_id="bob")])

    assert engine.set(message(world.message("m1"))).save().id_map == {}
    assert engine.set(world.message("m1")).save().id_map == {}
    assert world.branches() == {"main": ["m1"]}


def test_an_edit_of_an_edit_names_the_branch_after_its_own(world: EngineWorld) -> None:
    """The base of the name is the engine's branch (SM-25, SM-26)."""
    engine = world.saved(user("hello", id="m1"))
    second = engine.set(user("again", id="m1")).save()
    third = engine.set(user("and again", id=second.id_map["m1"])).save()

    assert (second.branch, third.branch) == ("main-v2", "main-v2-v2")
    assert world.engine().save().branch == "main-v2-v2"


# Equal messages and equal ids


def test_an_identical_message_of_the_chain_is_skipped(world: EngineWorld) -> None:
    """No event; the result names the message as stored (SM-47)."""
    engine = world.saved(*five()[:3])
    events = length(world.ledger)
    result = engine.set(*five()[:2]).save()

    assert result == SaveResult(head_message_id="m3", branch="main", message_ids=["m1", "m2"], id_map={})
    assert length(world.ledger) == events
    assert engine.pending == []


def test_identical_messages_among_new_ones_are_skipped(world: EngineWorld) -> None:
    """As when an agent is given the whole conversation again, with one more message (SM-47)."""
    engine = world.saved(*five()[:3])
    result = engine.set(*five()[:4]).save()

    assert world.chain() == ["m1", "m2", "m3", "m4"]
    assert result.message_ids == ["m1", "m2", "m3", "m4"]
    assert result.id_map == {}


def test_an_identical_message_of_another_chain_gets_a_new_id(world: EngineWorld) -> None:
    """It is appended here, and the stored one stays where it is (SM-47)."""
    engine = world.saved(*five()[:3])
    engine.rewind("m1")
    result = engine.set(five()[2]).save()
    new = result.id_map["m3"]

    assert world.branches() == {"main": ["m1", "m2", "m3"], "main-v2": ["m1", new]}
    assert world.message(new).data == data("text 3", new)
    assert result.branch == "main-v2"


def test_the_later_of_two_pending_messages_counts(world: EngineWorld) -> None:
    """It takes the place of the earlier one in the queue; there is no edit (SM-47)."""
    engine = world.engine().set(user("one", id="m1"), user("two", id="m2"), user("one again", id="m1"))

    assert shown(engine) == ["one again", "two"]
    result = engine.save()
    assert world.chain() == ["m1", "m2"]
    assert world.message("m1").data == data("one again", "m1")
    assert result.message_ids == ["m1", "m2"]
    assert engine.pending == []


def test_the_later_of_two_pending_edits_counts(world: EngineWorld) -> None:
    """Back to what is stored is no edit at all (SM-47)."""
    engine = world.saved(*five()[:3])
    result = engine.set(assistant("edited", "m2"), assistant("text 2", "m2")).save()

    assert result.id_map == {}
    assert list(world.branches()) == ["main"]


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
        (lambda: user({"role": "user", "parts": [float("nan")]}, id="bad"), "nan"),
        (lambda: user("\ud800", id="bad"), "surrogate"),
        (lambda: user({"role": "user", "parts": [2**64]}, id="bad"), "64 bits"),
        (lambda: user("x", id="bad", sender_id=""), "empty"),
        (lambda: NewMessage("x" * 2049, 1, id="bad"), "2,049 bytes"),
        (lambda: user("x", id="bad", reply_to="nowhere"), "'nowhere'"),
    ],
    ids=["nan", "surrogate", "large integer", "empty sender", "long name", "unknown reply_to"],
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
    stored = Message(id="m3", name="user", data=data("three", "m3"), created_at=1, chat_id="elsewhere")
    shaped: dict[str, Any] = {"name": "user", "type": "message", "id": "m4", "codec": user("four", id="m4").codec}
    world.saved(user("one", id="m1"), NewMessage("user", data("two", "m2"), id="m2"), stored, shaped)

    assert world.chain() == ["m1", "m2", "m3", "m4"]
    assert shown(world.engine()) == ["one", "two", "three", "four"]


def test_reply_to_follows_an_edited_message(world: EngineWorld) -> None:
    """An answer to a message of the same save that is edited points to its new id."""
    engine = world.saved(user("hello", id="m1"))
    result = engine.set(user("edited", id="m1"), assistant("answer", "a1", reply_to="m1")).save()

    assert world.message("a1").reply_to == result.id_map["m1"]


# When others write


def test_two_writers_make_one_chain_with_both_turns(world: EngineWorld) -> None:
    """The second save follows what the first one added, under its own ids (SM-48)."""
    world.engine().save()
    one, two = world.engine(), world.engine()
    for engine in (one, two):
        engine.resolve()
    one.set(user("one", id="a1"), assistant("to one", "a2")).save()
    result = two.set(user("two", id="b1"), assistant("to two", "b2")).save()

    assert world.branches() == {"main": ["a1", "a2", "b1", "b2"]}
    assert result.id_map == {}


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


@pytest.mark.parametrize("on_conflict", ["rebase", "fork", "raise"])
def test_without_a_conflict_all_are_the_same(world: EngineWorld, on_conflict: Any) -> None:
    """Nobody else wrote: the messages follow the head."""
    engine = world.saved(user("hello", id="m1"))
    engine.set(user("more", id="m2")).save(on_conflict=on_conflict)

    assert world.branches() == {"main": ["m1", "m2"]}


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

    from chatledger.infra.log import LostRaceError

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


def test_context_fragments_are_never_stored(world: EngineWorld) -> None:
    """Two lists: the system prompt, and what a save stores (CE-17)."""
    engine = world.engine().set(hint("be brief"), user("hello", id="m1"), hint("be kind"))
    engine.save()

    assert world.chain() == ["m1"]
    assert [one.data for one in engine.fragments] == ["be brief", "be kind"]


def test_lazy_content_that_is_no_text_is_refused(world: EngineWorld) -> None:
    """At once, when it is made (CE-11)."""
    anything: Any = 5
    with pytest.raises(InvalidValueError, match="must be text, not int"):
        last_assistant_message(anything)
