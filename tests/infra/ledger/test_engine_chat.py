"""The chat of a context engine: title, metadata and usage (CE-26, CE-27)."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from tests.contracts.store_world import together
from tests.support.engine_world import KINDS, EngineWorld
from tests.support.ledger_world import length

from chatledger import Chat, ContextEngine, InvalidValueError, user


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[EngineWorld]:
    with EngineWorld(request.param) as world:
        yield world


def stored(world: EngineWorld) -> Chat:
    chat = world.ledger.get_chat(world.chat)
    assert chat is not None
    return chat


def test_update_chat(world: EngineWorld) -> None:
    """Title and metadata; metadata are merged shallowly, and the answer is the chat afterwards (CE-26)."""
    engine = world.engine(metadata={"a": 1, "b": {"x": 1}})
    first = engine.update_chat(title="Riga", metadata={"b": {"y": 2}, "c": None})
    second = engine.update_chat(metadata={"a": 2})
    third = engine.update_chat(title=None)

    assert (first.title, first.metadata) == ("Riga", {"a": 1, "b": {"y": 2}, "c": None})
    assert (second.title, second.metadata) == ("Riga", {"a": 2, "b": {"y": 2}, "c": None})
    assert (third.title, third.metadata) == (None, second.metadata)
    assert engine.chat == third == stored(world)


def test_an_update_of_nothing_writes_nothing(world: EngineWorld) -> None:
    """No value, or the values that are there."""
    engine = world.engine(metadata={"a": 1})
    engine.update_chat(title="Riga")
    events = length(world.ledger)
    engine.update_chat()
    engine.update_chat(title="Riga", metadata={"a": 1})
    engine.update_chat(metadata={})

    assert length(world.ledger) == events


def test_updates_merge_what_others_wrote(world: EngineWorld) -> None:
    """Over the stored metadata, not over those that this engine has seen (CE-26)."""
    engine = world.engine()
    engine.update_chat(metadata={"a": 1})
    world.engine().update_chat(metadata={"b": 2})

    assert engine.update_chat(metadata={"c": 3}).metadata == {"a": 1, "b": 2, "c": 3}


def test_metadata_can_be_replaced(world: EngineWorld) -> None:
    """As a whole, as with `Ledger.update_chat`."""
    engine = world.engine(metadata={"a": 1})

    assert engine.update_chat(replace_metadata={"b": 2}).metadata == {"b": 2}
    assert engine.update_chat(replace_metadata=None).metadata is None
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="not both"):
        engine.update_chat(metadata={"a": 1}, replace_metadata={})


@pytest.mark.parametrize("bad", [5, b"x", ["x"], "\ud800"], ids=ascii)
def test_titles_are_checked(world: EngineWorld, bad: Any) -> None:
    """Text or None."""
    engine = world.saved(user("one"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="title"):
        engine.update_chat(title=bad)


@pytest.mark.parametrize(
    "bad", [5, "text", [("a", 1)], {"a": {1}}, {1: 2}, {"a": float("nan")}, {"a": (1,)}], ids=ascii
)
def test_metadata_are_checked(world: EngineWorld, bad: Any) -> None:
    """A JSON object; the error names what is wrong, and nothing is written."""
    engine = world.saved(user("one"))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="metadata"):
        engine.update_chat(metadata=bad)


def test_usage_is_added_up(world: EngineWorld) -> None:
    """Field by field, nested ones too; what neither has stays absent; `raw` is the last given (CE-27)."""
    engine = world.engine(metadata={"kept": True})
    engine.track_usage(
        {
            "input_tokens": 10,
            "output_tokens": None,
            "input_token_details": {"cache_read": 3, "no_cache": 7},
            "raw": {"id": 1, "first": True},
        }
    )
    chat = engine.track_usage(
        {
            "input_tokens": 5,
            "total_tokens": 8,
            "input_token_details": {"cache_read": 1, "cache_write": 2},
            "output_token_details": {"reasoning": 1, "text": None},
            "raw": {"id": 2},
        }
    )

    assert chat.metadata == {
        "kept": True,
        "usage": {
            "input_tokens": 15,
            "total_tokens": 8,
            "input_token_details": {"cache_read": 4, "no_cache": 7, "cache_write": 2},
            "output_token_details": {"reasoning": 1},
            "raw": {"id": 2},
        },
    }
    assert engine.chat == chat == stored(world)


def test_usage_may_be_any_mapping(world: EngineWorld) -> None:
    """As what a client library returns may be."""
    usage: Mapping[str, Any] = MappingProxyType({"input_tokens": 1, "details": MappingProxyType({"text": 1})})
    chat = world.engine().track_usage(usage)

    assert chat.metadata == {"usage": {"input_tokens": 1, "details": {"text": 1}}}


@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        "text",
        [1],
        {"input_tokens": -1},
        {"input_tokens": "1"},
        {"input_tokens": True},
        {"input_tokens": float("nan")},
        {"input_tokens": float("inf")},
        {"details": {"text": -1}},
        {"raw": {1}},
        {5: 1},
    ],
    ids=ascii,
)
def test_usage_is_checked(world: EngineWorld, bad: Any) -> None:
    """Counts are numbers of at least 0; otherwise nothing is written."""
    engine = world.saved(user("one"))
    engine.track_usage({"input_tokens": 1})
    with world.nothing_happens(engine), pytest.raises(InvalidValueError):
        engine.track_usage(bad)


def test_usage_where_something_else_stood(world: EngineWorld) -> None:
    """Metadata of the caller under that name are no counts: they give way."""
    chat = world.engine(metadata={"usage": "a lot"}).track_usage({"input_tokens": 1})

    assert chat.metadata == {"usage": {"input_tokens": 1}}


def test_concurrent_updates_lose_nothing(world: EngineWorld) -> None:
    """Usage is summed, and keys of all writers are there (CE-26, CE-27)."""
    world.engine().save()
    engines: list[ContextEngine] = [world.engine() for _ in range(8)]

    def work(number: int) -> None:
        for turn in range(5):
            engines[number].track_usage({"total_tokens": 1, "details": {"text": 2}})
            engines[number].update_chat(metadata={f"{number} {turn}": True})

    together(8, work)
    metadata = stored(world).metadata

    assert metadata is not None
    assert metadata.pop("usage") == {"total_tokens": 40, "details": {"text": 80}}
    assert set(metadata) == {f"{number} {turn}" for number in range(8) for turn in range(5)}
