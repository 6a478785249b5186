"""Reminders through a context engine: into the last user message of a save, and out again (CE-32 to CE-34)."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import EngineWorld, data, shown

from chatledger import NewMessage, assistant, user
from chatledger.fragments import hint, last_assistant_message
from chatledger.reminders import ReminderContext, every_n_turns, first, once, reminder, strip_reminders, usage_exceeds


def tagged(text: str) -> str:
    return f"<system-reminder>{text}</system-reminder>"


def test_once_over_a_restart(tmp_path: Path) -> None:
    """Only the first user message carries it, and `strip_reminders` gives the original (acceptance CE 12)."""
    path = tmp_path / "data"
    with EngineWorld("sync", path) as world:
        chat = world.chat
        engine = world.engine().set(reminder("Be brief", when=once("w")), user("one", id="m1"))
        engine.save()
        engine.set(assistant("answer", "a1"), user("two", id="m2")).save()
    with EngineWorld("sync", path) as world:
        world.chat = chat
        engine = world.engine().set(reminder("Be brief", when=once("w")), user("three", id="m3"))
        engine.save()

        assert shown(engine) == [f"one{tagged('Be brief')}", "answer", "two", "three"]
        assert world.message("m1").data["metadata"]["once_ids"] == ["w"]
        assert strip_reminders(world.message("m1").data) == data("one", "m1")


def test_reminders_are_in_no_prompt(world: EngineWorld) -> None:
    """They are context, and never rendered (CE-32)."""
    engine = world.engine().set(hint("a"), reminder("Be brief"), hint("b"), user("one", id="m1"))

    assert engine.resolve().system_prompt == "<hint>a</hint>\n<hint>b</hint>"
    engine.save()
    assert engine.resolve().system_prompt == "<hint>a</hint>\n<hint>b</hint>"


def test_the_last_user_message_of_a_save_carries_them(world: EngineWorld) -> None:
    """Each reminder, in order; others of the save, and synthetic ones, carry none (CE-32)."""
    synthetic = {"role": "user", "parts": [{"type": "text", "text": "tick"}], "metadata": {"synthetic": {"a": 1}}}
    engine = world.engine().set(reminder("one"), reminder(hint("two")), reminder("three", as_part=True))
    engine.set(user("first", id="m1"), user("last", id="m2"), assistant("answer", "a1"), user(synthetic, id="s1"))
    engine.save()
    parts = world.message("m2").data["parts"]

    assert world.message("m1").data == data("first", "m1")
    assert world.message("a1").data == data("answer", "a1", "assistant")
    assert world.message("s1").data == {"id": "s1", **synthetic}
    assert [part["text"] for part in parts] == [f"last{tagged('one')}{tagged('<hint>two</hint>')}", tagged("three")]
    assert [one["mode"] for one in world.message("m2").data["metadata"]["reminders"]] == ["inline", "inline", "part"]
    assert world.message("m2").text.count("<system-reminder>") == 3


def test_resolve_shows_what_a_save_will_store(world: EngineWorld) -> None:
    """With the same ids, once, and nothing is stored by looking (CE-21)."""
    engine = world.saved(user("one", id="m1")).set(reminder("Be brief", when=once("w")), user("two", id="m2"))
    with world.nothing_happens(engine):
        before = engine.resolve(), engine.resolve()
    assert engine.pending[0].codec is not None
    assert engine.pending[0].codec.encode() == data("two", "m2")
    engine.save()

    assert before[0] == before[1] == engine.resolve()
    assert shown(engine) == ["one", f"two{tagged('Be brief')}"]


def test_a_save_without_a_user_message_fires_nothing(world: EngineWorld) -> None:
    """The reminder waits for the next one; a user message of another shape is saved as it is (CE-32)."""
    engine = world.saved(user("one", id="m1")).set(reminder("Be brief", when=once("w")), assistant("answer", "a1"))
    engine.save()
    engine.set(NewMessage("user", "plain", id="p")).save()
    assert world.message("p").data == "plain"
    engine.rewind("a1")
    engine.set(user("two", id="m2")).save()

    assert shown(engine) == ["one", "answer", f"two{tagged('Be brief')}"]


def test_what_carries_reminders_is_identical_to_what_was_set(world: EngineWorld) -> None:
    """Set again, with or without them, it is skipped, also beside a new one; an edit is one of the original text (SM-47)."""
    engine = world.engine().set(reminder("Be brief"), user("one", id="m1"))
    engine.save()
    again = engine.set(user("one", id="m1")).save()
    stored = engine.set(world.message("m1")).save()
    assert (again.id_map, stored.id_map, world.branches()) == ({}, {}, {"main": ["m1"]})
    engine.set(user("one", id="m1"), user("two", id="m2")).save()
    assert shown(engine) == [f"one{tagged('Be brief')}", f"two{tagged('Be brief')}"]
    edited = engine.set(user("one, better", id="m1")).save()

    assert world.message(edited.id_map["m1"]).text == f"one, better{tagged('Be brief')}"
    assert strip_reminders(world.message(edited.id_map["m1"]).data) == data("one, better", "m1")


def test_turns_are_those_of_the_branch(world: EngineWorld) -> None:
    """A rewind takes turns back, and so does an edit (CE-34)."""
    engine = world.engine().set(reminder("turn", when=every_n_turns(2)))
    for number in range(1, 4):
        engine.set(user(f"{number}", id=f"m{number}")).save()
    assert shown(engine) == ["1", f"2{tagged('turn')}", "3"]
    engine.rewind("m1")
    engine.set(user("another 2")).save()
    engine.switch_branch("main")
    engine.set(user("better 2", id="m2")).save()

    assert shown(engine) == ["1", f"better 2{tagged('turn')}"]
    assert world.ledger.get_messages(world.chat, branch="main-v2")[-1].text == f"another 2{tagged('turn')}"


def test_once_counts_in_the_conversation_of_the_branch(world: EngineWorld) -> None:
    """Where the message that carried it is not on the branch, it has not fired (CE-34)."""
    engine = world.engine().set(user("one", id="m1"))
    engine.save()
    engine.set(reminder("w", when=once("w")), user("two", id="m2")).save()
    engine.rewind("m1")
    engine.set(user("other", id="x2")).save()

    assert shown(engine) == ["one", f"other{tagged('w')}"]


def test_usage_is_that_of_the_chat(world: EngineWorld) -> None:
    """As tracked, also by another engine (CE-34)."""
    engine = world.engine().set(reminder("much", when=usage_exceeds(100)), user("one", id="m1"))
    engine.save()
    world.engine().track_usage({"total_tokens": 100})
    engine.set(user("two", id="m2")).save()

    assert shown(engine) == ["one", f"two{tagged('much')}"]


def test_several_turns_in_one_save(world: EngineWorld) -> None:
    """Only the last user message is asked about; it is turn 2 here (CE-32)."""
    engine = world.engine().set(reminder("first", when=first()), reminder("even", when=every_n_turns(2)))
    engine.set(user("one", id="m1"), assistant("a", "a1"), user("two", id="m2")).save()

    assert shown(engine) == ["one", "a", f"two{tagged('even')}"]


def test_what_fails_is_logged_and_stops_nothing(world: EngineWorld, caplog: pytest.LogCaptureFixture) -> None:
    """A predicate or text function that raises counts as not fired; what it said is not logged (CE-34)."""

    def broken(_context: ReminderContext) -> Any:
        msg = "secret of the user"
        raise RuntimeError(msg)

    engine = world.engine().set(reminder("x", when=broken), reminder(broken), reminder("fine"), user("one", id="m1"))
    with caplog.at_level(logging.WARNING, "chatledger"):
        engine.save()

    assert shown(engine) == [f"one{tagged('fine')}"]
    first_line, second_line = (record.getMessage() for record in caplog.records)
    assert first_line.endswith("of reminder 1: RuntimeError")
    assert second_line == "text of reminder 2: RuntimeError"
    assert "secret" not in caplog.text


def test_beside_a_lazy_correction(world: EngineWorld) -> None:
    """The correction goes where it belongs, the reminder to the user's message."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"))
    engine.set(reminder("x"), last_assistant_message("better"), user("three", id="m3"))
    engine.save()

    assert shown(engine) == ["one", "better", f"three{tagged('x')}"]


def test_a_reminder_can_be_taken_back(world: EngineWorld) -> None:
    """By its id, as other context (CE-19)."""
    from msgspec.structs import replace

    engine = world.engine().set(replace(reminder("x"), id="r"), user("one", id="m1"))

    assert engine.unset("r") is True
    engine.save()
    assert shown(engine) == ["one"]
