"""Views of earlier moments that are carried on from others: they equal those that are replayed, and keep nothing that was deleted."""

import contextlib
import random
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, user
from chatledger.infra.entrypoints.http.kept_views import KeptViews
from chatledger.infra.ledger.scopes.as_of import replaying
from chatledger.infra.ledger.view import LedgerView, holds_deleted, view_carried_on
from chatledger.projections.as_of_index import AsOfIndex

pytestmark = pytest.mark.guard

CHATS = ("one", "two", "three")
STEPS = ("append", "append", "append", "fork", "annotate", "title", "checkpoint", "delete", "head", "look", "look")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chats of the tests count as long ones."""
    monkeypatch.setattr(replaying, "_WORTH_COST", 1)
    monkeypatch.setattr(replaying, "_ANCHOR_COST", 500)


def dump(view: LedgerView | Ledger) -> dict[str, Any]:
    """All that a view says."""
    found: dict[str, Any] = {"chats": view.list_chats(), "count": view.count_chats()}
    found["hits"] = [(hit.message.id, hit.snippet) for hit in view.search("parrot", limit=1000)]
    for chat in found["chats"]:
        branches = view.list_branches(chat.id)
        found[chat.id] = {
            "branches": branches,
            "active": view.get_active_branch(chat.id),
            "messages": {one.name: view.get_messages(chat.id, branch=one.name) for one in branches},
            "graph": view.graph(chat.id),
            "checkpoints": view.list_checkpoints(chat.id),
            "hits": [hit.message.id for hit in view.search("parrot", chat_id=chat.id, limit=1000)],
            "rows": view.get_rows(chat.id),
            "annotations": view.get_annotations(chat.id),
        }
    return found


def step(ledger: Ledger, kind: str, chat_id: str, number: int) -> None:
    """Do something to a chat, which is made if there is none."""
    ledger.upsert_chat(chat_id, "ada")
    messages = ledger.get_messages(chat_id)
    if kind == "append" or not messages:
        ledger.append(chat_id, [user(f"parrot {number}"), user(f"green {number}")][: 1 + number % 2])
        return
    some = messages[number % len(messages)]
    match kind:
        case "fork":
            ledger.fork(chat_id, some.id)
            ledger.append(chat_id, [user(f"a parrot of a fork {number}")])
        case "annotate":
            ledger.annotate(chat_id, some.id, stale=number % 2 == 0)
        case "title":
            ledger.update_chat(chat_id, title=f"title {number}", metadata={"number": number})
        case "checkpoint":
            ledger.set_checkpoint(chat_id, f"at{number % 3}", some.id)
        case "head":
            active = ledger.get_active_branch(chat_id)
            assert active is not None
            ledger.move_head(chat_id, active.name, some.id, expected=messages[-1].id)
        case _:
            ledger.delete_chat(chat_id)


STORIES = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(CHATS), st.integers(0, 50), st.floats(0, 1)),
    min_size=4,
    max_size=30,
)


def play(story: list[tuple[str, str, int, float]]) -> None:
    """Do what a story says, and compare views that begin with copies with those that begin with nothing."""
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(chatledger.open("memory:"))
        views: list[LedgerView] = []
        for kind, chat_id, number, share in story:
            if kind != "look":
                step(ledger, kind, chat_id, number)
                continue
            moment = round(share * ledger.position)
            view = stack.enter_context(view_carried_on(ledger, moment, lambda: views))
            with ledger.as_of(moment) as replayed:
                assert dump(replayed) == dump(view)
            views.append(view)
        for view in views:  # they are as they were, but for what was deleted
            with ledger.as_of(view.position) as replayed:
                assert dump(replayed) == dump(view)


@settings(max_examples=examples(40))
@given(story=STORIES)
def test_views_carried_on_equal_those_replayed(story: list[tuple[str, str, int, float]]) -> None:
    """Whatever happens between them, and in whatever order moments are asked for, a view that began with a copy says the same."""
    play(story)


@pytest.mark.guard
@pytest.mark.timeout(120)
def test_stories_with_many_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for stories of which it is known that views do begin with copies."""
    copies: list[Any] = []
    copied = AsOfIndex.copied

    def counted(source: AsOfIndex, folder: Any) -> AsOfIndex:
        copies.append(folder)
        return copied(source, folder)

    monkeypatch.setattr(AsOfIndex, "copied", counted)
    for seed in range(12):
        chosen = random.Random(seed)
        play([(chosen.choice(STEPS), chosen.choice(CHATS), chosen.randrange(50), chosen.random()) for _ in range(25)])

    assert len(copies) > 10


@contextlib.contextmanager
def long_ledger() -> Generator[Ledger]:
    """A ledger with a chat of 2,501 events, one of three, and one more event of the first."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("long", "ada")
        for number in range(2500):
            ledger.append("long", [user(f"parrot {number}")])
        ledger.create_chat("other", "ada")
        ledger.append("other", [user("a"), user("b")])
        ledger.append("long", [user("last")])
        yield ledger


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    """Such a ledger for the tests that only read it."""
    with long_ledger() as ledger:
        yield ledger


@pytest.fixture
def changed_ledger() -> Iterator[Ledger]:
    """Such a ledger for one test, which changes it."""
    with long_ledger() as ledger:
        yield ledger


class Replayed:
    """Counts the events that are replayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        apply = AsOfIndex.apply

        def counted(index: AsOfIndex, events: Any, **options: Any) -> None:
            self.count += len(events)
            apply(index, events, **options)

        monkeypatch.setattr(AsOfIndex, "apply", counted)

    def take(self) -> int:
        """Return the count since it was taken last."""
        count, self.count = self.count, 0
        return count


@pytest.mark.timeout(120)
def test_what_is_replayed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A near later moment costs the events in between, an earlier one those since an anchor; times do as positions do."""
    replayed = Replayed(monkeypatch)
    views = KeptViews()

    def texts(moment: Any) -> list[str]:
        with views.reading(ledger, None, moment) as view:
            return [message.text for message in view.get_messages("long", limit=2)]

    assert ["parrot 1988", "parrot 1989"] == texts(1991)
    assert 1991 == replayed.take()
    assert ["parrot 1996", "parrot 1997"] == texts(1999)
    assert 8 == replayed.take()
    assert ["parrot 1196", "parrot 1197"] == texts(1199)
    assert 199 == replayed.take()  # the anchor is at the end of the first page, 1,000 events
    assert ["parrot 497", "parrot 498"] == texts(500)
    assert 500 == replayed.take()
    views.close()


def test_a_step_back_over_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events with many messages each are a long chat too: the next step back begins near its end."""
    replayed, views = Replayed(monkeypatch), KeptViews()
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("long", "ada")
        for _ in range(30):
            ledger.append("long", [user("parrot") for _ in range(100)])
        for number in range(3):
            ledger.append("long", [user(f"last {number}")])
        for back in (1, 2):
            with views.reading(ledger, None, ledger.position - back) as view:
                assert 3003 - back == len(view.get_messages("long"))

    views.close()
    count = replayed.take()
    assert count < 33 + 15, count


@pytest.mark.timeout(120)
def test_a_deleted_chat_is_not_copied_and_not_kept(changed_ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a deletion no copy is made of what has the chat, and what has it is closed."""
    ledger, views = changed_ledger, KeptViews()
    ledger.append("other", [user("c")])
    with views.reading(ledger, None, 2000) as view:
        assert 1999 == len(view.get_messages("long"))
    with views.reading(ledger, None, 2503) as other:
        assert ["a", "b"] == [message.text for message in other.get_messages("other")]
    with views.reading(ledger, None, 2003) as untouched:
        assert untouched.get_chat("other") is None
    ledger.delete_chat("long")

    assert [True, False, False] == [holds_deleted(one) for one in (view, other, untouched)]
    ledger.create_chat("long", "ada")
    ledger.append("long", [user("new")])
    ledger.append("long", [user("newer")])
    replayed = Replayed(monkeypatch)
    with views.reading(ledger, None, ledger.position - 1) as anew:
        assert ["new"] == [message.text for message in anew.get_messages("long")]
    assert 2 == replayed.take()
    views.erase()
    assert 3 == len(views)
    with pytest.raises(chatledger.LedgerClosedError):
        view.get_messages("long")
    views.close()


@pytest.mark.timeout(120)
def test_a_view_of_another_user_is_no_start(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = Replayed(monkeypatch)
    views = KeptViews()
    for user_id, count in ((None, 1500), ("ada", 1600), ("ada", 100)):
        scope = ledger if user_id is None else ledger.for_user(user_id)
        moment = 1500 if user_id is None else 1700 if count == 100 else 1600
        with views.reading(scope, user_id, moment) as view:
            view.get_messages("long")
        assert count == replayed.take()
    views.close()
