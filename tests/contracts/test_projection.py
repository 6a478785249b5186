"""The contract of a custom projection: those of our tests keep it, and those that break it are noticed."""

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.custom_making import Tally
from tests.support.custom_world import Words

import chatledger
from chatledger import ConfigurationError, Ledger, Projection, ProjectionRows, Recorded, user
from chatledger.domain.log.codec import BODIES
from chatledger.events import ChatCreated
from chatledger.testing import check_projection, tell_story

_numbers = itertools.count()


def test_a_story_has_every_kind_of_event() -> None:
    with chatledger.open("memory:") as ledger:
        tell_story(ledger)
        told: set[str] = {recorded.topic for recorded in ledger.history()}
        told |= {event.topic for event in ledger.feed(0, follow=False)}

    # Of deleted threads and states only tombstones stay, and a small value is part of its checkpoint or version. What a rule
    # keeps of earlier versions is written by a sweep of the whole ledger, which is nothing for a story beside others.
    by_themselves = {"chatledger.version_content_put/2", "chatledger.versions_kept/2"}
    assert {body.TOPIC for body in BODIES} - told <= by_themselves


def test_two_stories_may_be_told_in_one_ledger() -> None:
    with chatledger.open("memory:") as ledger:
        tell_story(ledger, "one")
        tell_story(ledger, "two")
        ledger.verify()


@pytest.mark.parametrize("make", [Words, Tally])
def test_our_projections_keep_the_contract(make: Callable[[], Projection]) -> None:
    check_projection(make)


def test_a_story_of_the_callers_own() -> None:
    """It is told once, to an empty ledger."""
    told: list[int] = []

    def story(ledger: Ledger) -> None:
        told.append(ledger.last_position())
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("Hello")])

    check_projection(Words, story=story)
    assert told == [0]


class Named(Projection):
    name = "named"


class Leaving(Named):
    """Keeps a row of each chat beside the chat's own."""

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        if isinstance(recorded.body, ChatCreated):
            rows.put(recorded.chat_id, recorded.body.user_id)


class Counting(Named):
    """Counts in the object."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        self.count += 1
        rows.put("count", self.count)


class Random(Named):
    """Writes what follows from neither rows nor event."""

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        rows.of(recorded.chat_id).put("number", next(_numbers))


class Failing(Named):
    """Expects a title of each event."""

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        body: Any = recorded.body
        rows.put(recorded.position, body.title)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (Leaving, "a build from the log must give the rows"),
        (Counting, "applying an event again, of which nothing was kept, must change nothing|a build from the log"),
        (Random, "a build from the log must give the rows"),
        (Failing, "apply takes every event: .* It is a message_appended"),
    ],
)
def test_a_projection_that_breaks_a_rule_is_noticed(
    make: Callable[[], Projection], rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(AssertionError, match=rule):
        check_projection(make)


def test_what_is_no_projection() -> None:
    wrong: Any = object
    with pytest.raises(ConfigurationError, match="holds instances of classes"):
        check_projection(wrong)
