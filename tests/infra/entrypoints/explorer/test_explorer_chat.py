"""The page of a chat: paths through it, versions, moments and the steps of its slider."""

import re
import time
from collections.abc import Generator, Mapping
from datetime import UTC, datetime

import httpx
import pytest
from tests.support.explorer_world import demo_ledger, pages_of

import chatledger
from chatledger import NewMessage, assistant, user
from chatledger.domain.draw.event_words import messages_of
from chatledger.infra.entrypoints.explorer import steps
from chatledger.infra.entrypoints.http.access import Principal


@pytest.fixture(scope="module")
def ledger() -> Generator[chatledger.AsyncLedger]:
    """The sample conversations, and a chat with versions, a long branch and a message that no branch has."""
    with demo_ledger() as ledger:
        blocking = ledger.blocking()
        blocking.create_chat("trip", "ada")
        blocking.append("trip", [user("Where?", id="t1"), assistant("Riga", id="t2")])
        blocking.create_branch("trip", "other", "t1")
        blocking.append("trip", [assistant("Tallinn", id="t3")], branch="other")
        blocking.append("trip", [user(f"{number}", id=f"long-{number}") for number in range(120)])
        blocking.set_checkpoint("trip", "flagged", "t2")
        blocking.add_messages("trip", [NewMessage("assistant", "Nobody", id="lost", parent_id="t1")])
        yield ledger


@pytest.fixture(scope="module")
def pages(ledger: chatledger.AsyncLedger) -> Generator[httpx.Client]:
    with pages_of(ledger) as client:
        yield client


def ids_of(page: httpx.Response) -> list[str]:
    return [item["entry"]["message"]["id"] for item in page.json()["part"]["entries"]]


def test_whole_path_is_read_in_parts(pages: httpx.Client) -> None:
    """Part by part, backwards by links and forwards by depth, the path is the chain of the branch."""
    chain = ["t1", "t2", *(f"long-{number}" for number in range(120))]
    part = pages.get("/c/trip.json?branch=main").json()["part"]
    backwards = [item["entry"]["message"]["id"] for item in part["entries"]]
    assert (part["first"], part["count"]) == (72, 122)
    while part["first"]:
        part = pages.get(f"/c/trip.json?branch=main&first={max(part['first'] - 50, 0)}").json()["part"]
        backwards = [item["entry"]["message"]["id"] for item in part["entries"]] + backwards

    assert list(dict.fromkeys(backwards)) == chain
    forwards = [
        item["entry"]["message"]["id"]
        for first in range(0, 122, 50)
        for item in pages.get(f"/c/trip/path.json?along=main&first={first}").json()["entries"]
    ]
    assert forwards == chain
    assert pages.get("/c/trip/path.json?along=t2").json()["count"] == 2
    assert pages.get("/c/trip/path.json?first=500").json()["entries"] == []
    block = pages.get("/c/trip/path?along=main&first=100&rows=3&m=long-99").text
    assert block.count("<article") == 3
    assert 'data-first="100"' in block
    assert 'aria-posinset="101"' in block
    assert re.search(r'data-message="long-99"[^>]*\bchosen\b', block)


def test_ways_on_and_edits(pages: httpx.Client) -> None:
    """Where the conversation went on beside a message, with a branch of each; and what an edit changed, word by word."""
    ways = pages.get("/c/trip/ways.json?m=t3").json()
    text = pages.get("/c/trip/edited?m=t3").text

    assert [(way["message"]["id"], way["message"]["branches"], way["count"]) for way in ways["ways"]] == [
        ("t2", ["main"], 121),
        ("t3", ["other"], 1),
        ("lost", [], 1),
    ]
    assert pages.get("/c/trip/ways.json?m=t1").json()["ways"] == []
    assert "<del>Riga</del><ins>Tallinn</ins>" in text
    assert pages.get("/c/trip/edited?m=long-3").status_code == 404


@pytest.mark.parametrize(
    ("query", "branch", "last"),
    [
        ("", "main", "long-119"),
        ("?branch=other", "other", "t3"),
        ("?m=t3", "other", "t3"),
        ("?m=t3&branch=main", "other", "t3"),
        ("?m=long-119", "main", "long-119"),
        ("?m=t1&branch=other", "other", "t3"),
        ("?m=long-3", "main", "long-3"),
        ("?m=lost", None, "lost"),
    ],
)
def test_path_leads_through_a_message(pages: httpx.Client, query: str, branch: str | None, last: str) -> None:
    """The path is that of a branch that has the message; of the branch that was named, if that has it."""
    page = pages.get(f"/c/trip.json{query}")

    assert page.json()["branch"] == branch
    ids = ids_of(page)
    assert last in ids if last == "long-3" else ids[-1] == last


def test_lost_message_is_read_to_its_root(pages: httpx.Client) -> None:
    """The path of a message that no branch has is its chain; far from the head, one gets to the end of the branch."""
    assert ids_of(pages.get("/c/trip.json?m=lost")) == ["t1", "lost"]
    assert "No branch has this message" in pages.get("/c/trip?m=lost").text
    assert "Later messages" in pages.get("/c/trip?m=long-3").text


def test_versions_lead_to_each_other(pages: httpx.Client) -> None:
    """At a fork one sees which version it is, and gets to the others."""
    text = pages.get("/c/trip?branch=other").text

    assert "2 of 3" in text
    assert 'href="/c/trip?m=t2" rel="prev"' in text
    assert 'href="/c/trip?m=lost" rel="next"' in text
    assert "flagged" in pages.get("/c/trip?m=t2").text
    assert pages.get("/c/trip.json").json()["point_count"] == 1


def test_moment_shows_what_its_step_did(pages: httpx.Client, ledger: chatledger.AsyncLedger) -> None:
    """As of a step, the messages that it brought are marked, and nothing later is there."""
    third = list(ledger.blocking().history("trip"))[1]
    page = pages.get(f"/c/trip.json?at={third.position}").json()
    text = pages.get(f"/c/trip?at={third.position}").text

    assert [item["is_changed"] for item in page["part"]["entries"]] == [True, True]
    assert "Riga" in page["step"][0]
    assert "read-only" in text
    assert 'class="chip new">this step' in text
    assert pages.get("/c/trip?at=1").status_code == 404


def test_any_moment_shows_the_step_before_it(ledger: chatledger.AsyncLedger, pages: httpx.Client) -> None:
    """A time, and a position between the events of the chat, mark what happened last; the whole commit of several events."""
    blocking = ledger.blocking()
    blocking.create_chat("slow", "ada")
    blocking.append("slow", [user("one", id="s1")])
    time.sleep(0.002)
    between = datetime.now(UTC)
    time.sleep(0.002)
    blocking.update_chat("trip", title="A trip")
    blocking.append("slow", [user("two", id="s2")])

    for at in (between.isoformat(), str(list(blocking.history("slow"))[1].position + 1)):
        page = pages.get("/c/slow.json", params={"at": at}).json()
        assert [item["is_changed"] for item in page["part"]["entries"]] == [True]
        assert "one" in page["step"][0]
    committed = [recorded for recorded in blocking.history("riga") if recorded.event.rest]
    if committed:
        page = pages.get("/c/riga.json", params={"at": committed[0].position + committed[0].event.rest}).json()
        assert len(page["step"]) == committed[0].event.rest + 1
    blocking.delete_chat("slow")


@pytest.mark.parametrize(
    "path",
    [
        "/c/trip?m=none",
        "/c/trip?m=riga-1",
        "/c/trip?branch=none",
        "/c/none",
        "/c/none/steps",
        "/c/none/path",
        "/c/trip/path?along=none",
        "/c/trip/path?m=none",
        "/c/trip/ways?m=none",
        "/c/trip/ways?m=",
        "/c/none/ways?m=t1",
        "/c/trip/edited?m=riga-1",
    ],
)
def test_absent(pages: httpx.Client, path: str) -> None:
    """What the chat does not have is not found."""
    assert pages.get(path).status_code == 404


def test_steps_are_the_commits_of_the_chat(
    pages: httpx.Client, ledger: chatledger.AsyncLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is a moment at which the chat can be seen; they grow with it, and windows of them are the whole."""
    monkeypatch.setattr(steps, "_READ_AT_ONCE", 3)
    wanted = [recorded.position for recorded in ledger.blocking().history("trip") if not recorded.event.rest]
    found = pages.get("/c/trip/steps?buckets=4").json()
    while not found["is_complete"]:
        found = pages.get("/c/trip/steps?buckets=4").json()

    assert [step["position"] for step in found["steps"]] == wanted
    assert sum(part["count"] for part in found["density"]) == found["total"] == len(wanted)
    assert pages.get(f"/c/trip/steps?around={wanted[2]}&limit=2").json()["index"] == 2
    assert pages.get("/c/trip/steps?around=2001-01-01T00:00:00Z&limit=0").json()["index"] == 0
    assert pages.get("/c/trip/steps?around=2999-01-01T00:00:00Z&limit=0").json()["index"] == len(wanted) - 1
    assert pages.get("/c/trip/steps?around=someday").status_code == 422
    assert [step["number"] for step in pages.get("/c/trip/steps?first=1&limit=2").json()["steps"]] == [1, 2]
    for position in wanted:
        assert pages.get(f"/c/trip?at={position}").status_code == 200

    ledger.blocking().update_chat("trip", title="Trip")
    while not (now := pages.get("/c/trip/steps").json())["is_complete"]:
        pass
    assert now["total"] == len(wanted) + 1
    assert now["steps"][-1]["type"] == "chat_updated"


def test_deleted_chat_begins_anew(pages: httpx.Client, ledger: chatledger.AsyncLedger) -> None:
    """The steps of a chat that was deleted are forgotten."""
    blocking = ledger.blocking()
    blocking.create_chat("twice", "ada")
    blocking.append("twice", [user("secret")])
    assert pages.get("/c/twice/steps").json()["total"] == 2
    blocking.delete_chat("twice")
    assert pages.get("/c/twice/steps").status_code == 404
    blocking.create_chat("twice", "bob")

    assert [step["type"] for step in pages.get("/c/twice/steps").json()["steps"]][-1] == "chat_created"


def test_place_of_a_message_and_sum_of_its_path(pages: httpx.Client, ledger: chatledger.AsyncLedger) -> None:
    """Which of how many it is, which event brought it, and what the path took, as far as its last 200 messages say."""
    blocking = ledger.blocking()
    usage = {"usage": {"input_tokens": 40, "output_tokens": 2, "cost": 0.5}}
    blocking.create_chat("sum", "ada")
    blocking.append("sum", [user(f"q {at}", id=f"sum-{at}") for at in range(250)])
    blocking.append("sum", [NewMessage("assistant", "a", id="sum-a", metadata=usage)])
    shown = pages.get("/c/sum.json?m=sum-7&first=200").json()
    brought = next(event for event in blocking.history("sum", after=shown["position"] - 1))

    assert (shown["depth"], shown["part"]["first"]) == (7, 200)
    assert "sum-7" in messages_of(brought)
    total = shown["total"]
    assert (total["messages"], total["counted"], total["tokens"], total["cost"]) == (200, 1, 42, 0.5)
    text = pages.get("/c/sum?m=sum-7").text
    assert "8 of 251 on" in text
    assert "The last 200 messages of the path" in text
    assert f"position {shown['position']}" in text
    assert pages.get("/c/riga.json").json()["total"]["messages"] == 6
    blocking.create_chat("empty", "ada")
    assert pages.get("/c/empty.json").json()["total"] is None


def test_found_words_are_shown(pages: httpx.Client) -> None:
    """Words are found in this chat only, and marked for the graph."""
    text = pages.get("/c/riga?q=riga").text

    assert "<mark>Riga</mark>" in text
    assert 'hits="[&#34;riga-' in text
    assert "Nothing was found" in pages.get("/c/trip?q=sauerteig").text


def test_page_does_not_grow_with_the_chat(ledger: chatledger.AsyncLedger, pages: httpx.Client) -> None:
    """Of many branches, forks and checkpoints, the page has those that are shown and the first ones; the others by their names."""
    blocking = ledger.blocking()
    blocking.create_chat("wide", "ada")
    blocking.append("wide", [user(f"{number}", id=f"wide-{number}") for number in range(80)])
    for number in range(120):
        blocking.create_branch("wide", f"way-{number}", f"wide-{number % 60}")
        blocking.append("wide", [assistant("so?", id=f"w-{number}")], branch=f"way-{number}")
        blocking.set_checkpoint("wide", f"flag-{number}", f"wide-{number % 70}")
    for number in range(30):
        blocking.add_messages("wide", [NewMessage("assistant", f"{number}", parent_id="wide-0")])
    page = pages.get("/c/wide?branch=way-118")
    values = pages.get("/c/wide.json?branch=way-118").json()
    names = [branch["name"] for branch in values["branches"]]

    assert (values["branch_count"], len(names), names[-1]) == (121, 101, "way-118")
    assert (values["point_count"], len(values["points"])) == (60, 50)
    assert values["part"]["entries"][-2]["checkpoints"] == ["flag-58"]
    assert all(text in page.text for text in ("121 branches", 'value="way-118"', "60 forks", "and 13 more", "flag-58"))
    assert "flag-69" not in page.text
    choices = pages.get("/c/wide/diff.json").json()["choices"]
    assert len([choice for choice in choices if choice["kind"] in {"branch", "checkpoint"}]) == 200


def test_density_is_counted_again_when_the_chat_has_grown() -> None:
    """A few new steps are left out of it for a while, and then they are in."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("long", "ada")
        known = steps._ChatEvents()  # pyright: ignore[reportPrivateUsage]
        counts: list[int] = []
        for _ in range(3):
            ledger.append("long", [user("x")])
            known.read(ledger, "long")
            counts.append(sum(bar.count for bar in known.axis(4).density))

    assert counts == [2, 3, 4]


def test_steps_of_a_chat_that_was_imported_again(pages: httpx.Client, ledger: chatledger.AsyncLedger) -> None:
    """A chat that comes back as old as it was has its own steps only, not those of the one that was deleted."""
    blocking = ledger.blocking()
    blocking.create_chat("again", "ada")
    blocking.append("again", [user("one"), user("two")])
    kept = blocking.export_chat("again")
    before = pages.get("/c/again/steps").json()["steps"]
    blocking.delete_chat("again")
    blocking.import_chat(kept)
    after = pages.get("/c/again/steps").json()["steps"]

    assert blocking.export_chat("again").created_at == kept.created_at
    assert not {step["position"] for step in before} & {step["position"] for step in after}
    assert [step["number"] for step in after] == list(range(len(after)))


def test_steps_tell_nothing_of_an_earlier_owner() -> None:
    """Whoever looked before, a user gets the steps that they alone would get."""

    def who(headers: Mapping[str, str]) -> Principal:
        return Principal(user_id=headers.get("x-user"))

    with demo_ledger() as ledger:
        blocking = ledger.blocking()
        blocking.create_chat("shared-id", "ada")
        blocking.delete_chat("shared-id")
        blocking.create_chat("shared-id", "bob")
        bob = {"x-user": "bob"}
        with pages_of(ledger, authenticate=who) as alone:
            wanted = alone.get("/c/shared-id/steps", headers=bob).json()["steps"]
        with pages_of(ledger, authenticate=who) as after_all:
            after_all.get("/c/shared-id/steps")
            found = after_all.get("/c/shared-id/steps", headers=bob).json()["steps"]

    assert [step["type"] for step in wanted] == ["chat_created"]
    assert found == wanted


def test_steps_of_the_ledger(ledger: chatledger.AsyncLedger, pages: httpx.Client) -> None:
    """Each position is one, at which the ledger can be seen; windows and the density are of them all."""
    events = list(ledger.blocking().history())
    found = pages.get("/steps?limit=1000&buckets=8").json()
    middle = events[len(events) // 2]

    assert found["total"] == events[-1].position
    assert [step["number"] for step in found["steps"]] == [recorded.position - 1 for recorded in events]
    assert [step["position"] for step in found["steps"]] == [recorded.position for recorded in events]
    assert {pages.get("/chats.json", params={"at": number + 1}).status_code for number in range(20)} == {200}
    assert sum(part["count"] for part in found["density"]) == found["total"]
    assert len(found["density"]) == 8
    for moment in (middle.position, datetime.fromtimestamp(events[-1].occurred_at / 1000 + 1, UTC).isoformat()):
        window = pages.get("/steps", params={"around": moment, "limit": 3}).json()
        assert window["index"] == (middle if isinstance(moment, int) else events[-1]).position - 1
        assert window["index"] in [step["number"] for step in window["steps"]]
    assert pages.get("/steps?around=2001-01-01T00:00:00Z&limit=0").json()["index"] == 0
    assert pages.get(f"/steps?around={2**53 - 1}&limit=0").json()["index"] == events[-1].position - 1
    assert pages.get("/steps?around=someday").status_code == 422


def axis(times: list[int], buckets: int = 10) -> tuple[list[int], list[float], list[int], bool]:
    """The counts and places of the bars of steps at these times, the lengths of the pauses, and whether numbers count."""
    drawn = steps._axis_of(range(len(times)), times, [1] * len(times), len(times), buckets)  # pyright: ignore[reportPrivateUsage]
    return (
        [bar.count for bar in drawn.density],
        [bar.x for bar in drawn.density],
        [pause.ms for pause in drawn.pauses],
        drawn.is_by_number,
    )


def test_axis_goes_by_time() -> None:
    """Bursts are high bars, pauses are cut out and named; where all came within a minute, numbers count."""
    minute, day = 60_000, 86_400_000
    bursts = [at for start in (0, 90 * day, 240 * day) for at in range(start, start + 100 * minute, minute)]
    counts, places, pauses, is_by_number = axis(bursts, 30)

    assert (sum(counts), len(counts), is_by_number) == (300, 32, False)
    assert max(counts) <= 11
    assert places == sorted(places)
    assert [round(ms / day) for ms in pauses] == [90, 150]
    assert axis([5, 5, 5, 900]) == ([1, 1, 1, 1], [0, 1 / 3, 2 / 3, 1], [], True)
    moments = [0, 0, *[90 * day] * 5, *[240 * day] * 100]
    assert axis(moments, 30)[:2] == ([2, 5, 100], [0, 0.5, 1])
    assert axis([7]) == ([1], [0], [], True)
    assert axis([]) == ([], [], [], True)
    uneven, _, _, _ = axis([0, *range(minute, 2 * minute, 1000), 10 * minute])
    assert uneven == [1, 12, 12, 12, 12, 12, 1]
    many = [at * day for at in range(30)]
    assert axis(many)[2] == []
    assert len(axis([at * day + step for at in range(30) for step in range(50)])[2]) == 8


def test_pace_of_a_ledger() -> None:
    """Few new events change nothing, many are counted."""
    with chatledger.open("memory:") as ledger:
        pace = steps._LedgerPace()  # pyright: ignore[reportPrivateUsage]
        assert pace.axis(ledger, 0, 4).density == []
        ledger.create_chat("paced", "ada")
        for number in range(799):
            ledger.append("paced", [user(str(number))])
        first = pace.axis(ledger, 800, 4)
        ledger.append("paced", [user("one more")])

        assert [bar.count for bar in first.density] == [200] * 4
        assert pace.axis(ledger, 801, 4) is first
        assert len(pace.axis(ledger, 801, 3).density) == 3


def test_pace_of_a_ledger_whose_first_chats_are_gone() -> None:
    """Nothing tells when erased events came: they are as late as what is left near them, and not of 1970."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("gone", "ada")
        for number in range(60):
            ledger.append("gone", [user(str(number))])
        ledger.create_chat("left", "ada")
        ledger.append("left", [user("here")])
        ledger.delete_chat("gone")
        drawn = steps._LedgerPace().axis(ledger, ledger.position, 8)  # pyright: ignore[reportPrivateUsage]

        assert sum(bar.count for bar in drawn.density) == ledger.position
        assert min(bar.at for bar in drawn.density) > 1_700_000_000_000
        assert drawn.pauses == []
