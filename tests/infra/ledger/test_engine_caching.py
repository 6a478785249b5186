"""Prompts that are planned for a provider's cache, and what their answers carry."""

from typing import Any

import msgspec
import pytest
from tests.support.cli_world import fails, run
from tests.support.engine_world import EngineWorld, shown

import chatledger
from chatledger import InvalidValueError, assistant, user
from chatledger.errors import TranslationError
from chatledger.forms import known_form
from chatledger.fragments import fragment, hint, role
from chatledger.tokens import cache_report


def turn(engine: Any, number: int, provider: str = "anthropic") -> Any:
    engine.set(user(f"question {number}"))
    found = engine.resolve(form=provider, cache=provider)
    engine.set(assistant(f"answer {number}")).save()
    return found


def test_computed_and_volatile_fragments_come_last(world: EngineWorld) -> None:
    """Also after they were computed; others keep their order, as all do without a cache."""
    engine = world.engine().set(
        fragment("clock", lambda: "10:00"), hint("now").with_metadata(volatile=True), role("You plan.")
    )

    for _ in range(2):
        found = engine.resolve(cache="anthropic")
        assert found.cache is not None
        assert [block["text"] for block in found.cache.system] == [
            "<role>You plan.</role>",
            "\n<clock>10:00</clock>\n<hint>now</hint>",
        ]
        assert "".join(block["text"] for block in found.cache.system) == found.system_prompt
    assert engine.resolve().system_prompt.startswith("<clock>")
    assert engine.resolve().cache is None
    engine.set(fragment("tables", lambda: "users").with_metadata(volatile=False))
    plan = engine.resolve(cache="openai").cache
    assert plan is not None
    assert plan.system[0]["text"] == "<role>You plan.</role>\n<tables>users</tables>"


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_conversation_keeps_its_prefix(world: EngineWorld, provider: str) -> None:
    """What one request ended with is a breakpoint of the next, whoever makes it; new engines know it from the answer."""
    ends: list[str] = []
    for number in range(4):
        engine = world.engine().set(role("You plan."))
        plan = turn(engine, number, provider).cache
        if ends:
            assert plan.breakpoints[1].prefix == ends[-1]
        ends.append(plan.breakpoints[-1].prefix)

    found = cache_report(world.ledger.get_messages(world.chat))
    assert [one.is_kept for one in found] == [True] * 4
    assert {one.provider for one in found} == {provider}


def test_marks_that_are_set_anew_are_not_lost(world: EngineWorld) -> None:
    """Five messages came with one each; without a plan for the cache, those beyond four are named, and refused by `strict`."""
    engine = world.engine()
    for number in range(5):
        block = {"type": "text", "text": f"turn {number}", "cache_control": {"type": "ephemeral"}}
        engine.set({"role": "user", "content": [block]})
    engine.save()

    resolved = engine.resolve(form="anthropic", cache="anthropic", strict=True)

    assert [] == resolved.dropped
    assert 1 == str(resolved.messages).count("cache_control")
    assert ["cache_control"] == [lost.what for lost in engine.resolve(form="anthropic").dropped]
    with pytest.raises(TranslationError):
        engine.resolve(form="anthropic", strict=True)


def test_the_report_names_the_fragment(world: EngineWorld) -> None:
    engine = world.engine().set(role("You plan."), hint("short").with_id("tone"))
    turn(engine, 0)
    engine.set(hint("long").with_id("tone"))
    turn(engine, 1)
    turn(engine, 2)

    found = cache_report(world.ledger.get_messages(world.chat))

    assert [one.is_kept for one in found] == [True, False, True]
    assert (found[1].part, found[1].fragment) == ("system", "hint (tone)")


def test_a_window_that_slides_and_a_compaction_are_told(world: EngineWorld) -> None:
    engine = world.engine().set(role("You plan."))
    for number in range(3):
        engine.set(user(f"question {number}"))
        engine.resolve(form="anthropic", cache="anthropic", last_n=3)
        engine.set(assistant(f"answer {number}")).save()
    engine.compact("Short.")
    turn(engine, 3)

    found = {
        branch: cache_report(world.ledger.get_messages(world.chat, branch=branch)) for branch in ("main", "main-v2")
    }

    assert [turn.is_kept for turn in found["main"]] == [True, True, False]
    assert [turn.is_kept for turn in found["main-v2"]] == [True, False]
    assert all("begins with another message" in turns[-1].reason for turns in found.values())


def test_saving_an_answer_again_is_no_edit(world: EngineWorld) -> None:
    """The record is no part of what was said: neither with it nor without, nor after another prompt."""
    engine = world.engine().set(user("question", id="q"))
    engine.resolve(cache="openai")
    engine.set(assistant("answer", "a")).save()
    stored = world.content()

    engine.set(assistant("answer", "a")).save()
    engine.resolve(cache="openai")
    engine.set(assistant("answer", "a")).save()

    assert world.content() == stored
    assert shown(engine) == ["question", "answer"]


def test_the_record_goes_with_the_next_answer_only(world: EngineWorld) -> None:
    """Not with one that was set before, nor after a move to another branch, nor after a prompt without a plan."""
    engine = world.engine().set(user("question"), assistant("given", "a0"))
    engine.resolve(cache="openai")
    engine.set(assistant("answer", "a1"), assistant("more", "a2")).save()
    engine.resolve(cache="openai")
    engine.resolve()
    engine.set(assistant("unplanned", "a3")).save()
    engine.resolve(cache="openai")
    engine.rewind("a1")
    engine.set(assistant("elsewhere", "a4")).save()

    carried = [one.id for branch in ("main", "main-v2") for one in cache_report_messages(world, branch)]
    assert sorted(set(carried)) == ["a1"]


def cache_report_messages(world: EngineWorld, branch: str) -> list[Any]:
    messages = {one.id: one for one in world.ledger.get_messages(world.chat, branch=branch)}
    return [messages[one.message_id] for one in cache_report(messages.values())]


def test_objects_of_a_format_of_ones_own_are_not_marked(world: EngineWorld) -> None:
    """Also where it goes by the name of Anthropic's, whose SDK may have made them."""
    made, known = object(), known_form("anthropic")
    assert known is not None
    own = msgspec.structs.replace(known, decode=lambda _values: [made])

    found = world.saved(user("question")).resolve(form=own, cache="anthropic")

    assert found.messages == [made]


def test_unknown_providers_are_refused(world: EngineWorld) -> None:
    engine = world.saved(user("question"))
    unknown: list[Any] = ["google", "", 1, True]
    for cache in unknown:
        with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="'anthropic' or 'openai'"):
            engine.resolve(cache=cache)


def test_cache_report_in_the_shell(tmp_path: Any) -> None:
    """One line for each prompt, and which fragment changed; politely none where none was recorded."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        engine = chatledger.ContextEngine(ledger, "trip", "ada").set(role("You plan."), hint("a").with_id("tone"))
        engine.set(user("plain"), assistant("plain")).save()
        engine.set(user("question"))
        ledger.create_chat("empty", "ada")
        turn(engine, 0)
        engine.set(hint("b").with_id("tone"))
        turn(engine, 1)

    at = tmp_path / "data"
    result = run("cache-report", "trip", at=at)

    assert result.exit_code == 0
    assert "kept" in result.stdout
    assert "changed  system: fragment hint (tone) changed" in result.stdout
    assert "1 of 2 prompts kept the prefix of the one before. Most often by fragment hint (tone)." in result.stdout
    assert '"fragment":"hint (tone)"' in run("cache-report", "trip", "--json", at=at).stdout
    assert "programs record them" in run("cache-report", "empty", at=at).stdout
    assert "no chat 'nowhere'" in fails(1, "cache-report", "nowhere", at=at)
    assert "has no branch 'mian'; it has 'main'" in fails(1, "cache-report", "trip", "--branch", "mian", at=at)
