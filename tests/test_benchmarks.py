"""The benchmarks run: every subject at its smallest size, with its check that both sides give the same answer."""

import gc
import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import CalledProcessError
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import msgspec
import pytest
from benchmarks import measure
from benchmarks.compare import compare_results, last_two, make_comparison
from benchmarks.curves import CURVES
from benchmarks.machine import Machine
from benchmarks.measure import ResultsDifferError, Row, check_equal, take_turns
from benchmarks.plots import write_plots
from benchmarks.prose import COMMON, MID, PHRASE, RARE, Prose
from benchmarks.report import BEGIN, END, cells, make_markdown, write_docs
from benchmarks.subjects.small_chats import REAL
from benchmarks.suite import SUBJECTS, Result, run
from benchmarks.walks import count_calls, make_table, walks
from benchmarks.world import SMOKE, World, append_singly

import chatledger

QUICK = {"appends", "chains", "search"}


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tidying up around samples, which only makes times steady: in a process with many tests it takes longer than they do."""
    monkeypatch.setattr("benchmarks.measure.gc", Mock(spec=gc))
    monkeypatch.setattr("benchmarks.measure.os", Mock(spec=os))


@pytest.mark.guard
@pytest.mark.usefixtures("without_pauses")
@pytest.mark.parametrize(
    "subject", [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.soak]) for one in SUBJECTS]
)
def test_subject_runs_and_answers_are_equal(subject: str, tmp_path: Path) -> None:
    """Each subject gives rows of its own name, with samples of both sides, and survives being kept."""
    if subject == "sessions" and find_spec("agents") is None:
        pytest.skip("the package openai-agents is not installed")
    if subject == "real_chats" and not REAL.exists():
        pytest.skip(f"no file of real messages: set CHATLEDGER_OASST (tried {REAL.name} in shared/data)")
    result = run(tmp_path, SMOKE, only=[subject])

    assert {subject} == {row.subject for row in result.rows} == set(result.took_s)
    assert all(sample > 0 for row in result.rows for sample in [*row.ours, *row.theirs])
    assert result == msgspec.json.decode(msgspec.json.encode(result), type=Result)
    assert all(cells(row)[0] in make_markdown(result) for row in result.rows)


def test_different_answers_are_not_compared() -> None:
    """A run ends when the two sides do not say the same."""
    check_equal("a chain", [1], [1])
    with pytest.raises(ResultsDifferError, match="a chain"):
        check_equal("a chain", [1], [2])


def test_prose_has_words_as_often_as_promised() -> None:
    """Equal seeds make equal texts, of about 200 characters, with the planted words in their share of the messages."""
    texts = [message.data["parts"][0]["text"] for message in Prose(1, length=2000).messages(2000)]

    def count(words: str) -> int:
        return sum(f" {words}" in f" {text}" for text in texts)

    assert texts == [message.data["parts"][0]["text"] for message in Prose(1, length=2000).messages(2000)]
    assert 180 < sum(map(len, texts)) / len(texts) < 250
    assert count(f"{COMMON} ") > len(texts) / 2
    assert [20, 10, 10] == [count(MID), count(RARE), count(PHRASE)]


@pytest.mark.usefixtures("without_pauses")
def test_turns_change_who_goes_first() -> None:
    """Samples are taken in turns, and each side goes first as often as the other."""
    order: list[str] = []
    samples = take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2, is_warm=False)

    assert ["a", "b", "b", "a"] == order
    assert [2, 2] == [len(values) for values in samples.values()]


def test_ratio_is_theirs_over_ours() -> None:
    """A ratio above one means that we need less."""
    row = Row(subject="s", name="n", peer="p", ours=[1.0, 2.0, 3.0], theirs=[4.0, 4.0, 6.0])

    assert 2.0 == row.ratio
    assert (2.0, 4.0) == row.ratio_range


def test_docs_keep_what_is_around_the_table(tmp_path: Path) -> None:
    """Only what is between the markers is replaced; a page without them is refused."""
    result = _result(_row("steady", [2.0, 2.0]))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_docs(page, result)
    write_docs(page, result)
    text = page.read_text()

    assert text.startswith(f"before\n{BEGIN}")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert 1 == text.count(make_markdown(result))

    page.write_text("nothing")
    with pytest.raises(ValueError, match="no markers"):
        write_docs(page, result)


@pytest.mark.soak
@pytest.mark.usefixtures("without_pauses")
def test_curves_are_measured_and_drawn(tmp_path: Path) -> None:
    """A point for each size and operation, and all of it in a plot that is well-formed."""
    result = run(tmp_path, SMOKE, only=[CURVES])
    write_plots(tmp_path / "images", result.curves)
    drawn = ET.fromstring((tmp_path / "images" / "scaling.svg").read_text())

    assert {"append", "chain", "chain, lazy data", "last 50", "search, 10 hits", "rebuild"} == {
        curve.name for curve in result.curves
    }
    assert all(list(SMOKE.scaling) == [size for size, _ in curve.points] for curve in result.curves)
    assert len(result.curves) == len(drawn.findall(".//{*}polyline"))
    assert {curve.name for curve in result.curves} <= {text.text for text in drawn.findall(".//{*}text")}


def _result(*rows: Row) -> Result:
    machine = Machine(system="s", processor="p", cores=2, fsync_ms=0.1, versions={})
    return Result(at="2026-01-01T00:00:00", sizes="smoke", machine=machine, rows=list(rows))


def _row(name: str, ours: list[float]) -> Row:
    return Row(subject="s", name=name, peer="p", ours=ours, theirs=[4.0] * len(ours))


@pytest.mark.soak
def test_only_what_is_above_the_noise_is_a_change() -> None:
    """The same shift of the median counts where samples agree, and does not where they spread."""
    before = _result(_row("steady", [2.0, 2.0, 2.0]), _row("noisy", [1.0, 2.0, 4.0]), _row("old", [1.0]))
    after = _result(_row("steady", [1.0, 1.0, 1.0]), _row("noisy", [0.9, 1.7, 4.0]), _row("fresh", [1.0]))
    changes = {change.name: change.verdict for change in compare_results(before, after)}
    back = {change.name: change.verdict for change in compare_results(after, before)}

    assert {"steady": "faster", "noisy": "same", "fresh": "new", "old": "gone"} == changes
    assert {"steady": "slower", "noisy": "same", "fresh": "gone", "old": "new"} == back
    assert 4 == make_comparison(compare_results(before, after)).row_count


def test_the_last_two_results_of_a_size_are_compared(tmp_path: Path) -> None:
    """Names begin with the time; other sizes do not count; fewer than two are refused."""
    for name in ("1-full", "2-full", "3-quick", "4-full"):
        (tmp_path / f"{name}.json").touch()

    assert ("2-full.json", "4-full.json") == tuple(path.name for path in last_two(tmp_path, "full"))
    with pytest.raises(ValueError, match="two are needed"):
        last_two(tmp_path, "quick")


@pytest.mark.usefixtures("without_pauses")
def test_slow_calls_are_sampled_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """When patience is over three samples do, in turns all the same; and no more are taken than were wanted."""
    calls: list[str] = []
    runs = {name: partial(calls.append, name) for name in ("ours", "theirs")}
    assert {name: len(found) for name, found in take_turns(runs, repeats=5, is_warm=False).items()} == dict.fromkeys(
        runs, 5
    )

    monkeypatch.setattr(measure, "_PATIENCE_S", -1)
    calls.clear()
    assert {name: len(found) for name, found in take_turns(runs, repeats=5, is_warm=False).items()} == dict.fromkeys(
        runs, 3
    )
    assert calls == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert len(take_turns(runs, repeats=2, is_warm=False)["ours"]) == 2


@pytest.mark.soak
def test_what_others_keep_is_hidden_from_the_collector() -> None:
    """While samples are taken, and not any more after them, also when a call fails."""
    hidden: list[int] = []

    def fail() -> None:
        hidden.append(gc.get_freeze_count())
        raise KeyError

    take_turns({"ours": lambda: hidden.append(gc.get_freeze_count())}, repeats=1)
    with pytest.raises(KeyError):
        take_turns({"ours": fail}, repeats=1)

    assert all(count > 0 for count in hidden)
    assert 0 == gc.get_freeze_count()


@pytest.mark.soak
def test_a_store_filled_in_another_process_is_the_same(tmp_path: Path) -> None:
    """It is what `stored` gives from then on, and nothing is filled twice."""
    world = World(tmp_path, SMOKE)
    with world.storing(30):
        pass
    with world.storing(30), chatledger.open(world.stored(30)) as ledger:
        stored = ledger.get_messages("chat")

    assert [one.id for one in Prose(30, length=30).messages(30)] == [message.id for message in stored]


def test_a_store_that_could_not_be_filled_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that fills says so."""
    monkeypatch.setattr("benchmarks.world._STORE", "raise SystemExit(3)")
    with pytest.raises(CalledProcessError, match="3"), World(tmp_path, SMOKE).storing(30):
        pass


def test_many_chats_are_filled_at_a_time(tmp_path: Path) -> None:
    """Each message in a commit of its own, and what was there before goes on."""
    folder, talk = tmp_path / "ledger", Prose(1)
    position = append_singly(folder, ["a", "b", "c"], 2, talk)
    end = append_singly(folder, ["b"], 1, talk)
    with chatledger.open(folder) as ledger:
        assert [2, 3, 2] == [len(ledger.get_messages(chat_id)) for chat_id in "abc"]
        assert (position + 1, end) == (end, ledger.last_position())


def test_only_our_functions_are_counted() -> None:
    """Each by its file, whatever else is called; and nothing is counted once the call is over, also when it fails."""
    walk = count_calls("one", lambda: sorted([chatledger.user("a"), chatledger.user("b")], key=str))
    with pytest.raises(ValueError, match="absent"):
        count_calls("fails", lambda: int("absent"))
    chatledger.user("c")

    assert 2 == next(count for function, count in walk.calls.items() if "user" == function.name)
    assert all(name.startswith(("domain/", "projections/", "infra/")) for name in walk.files)
    assert sys.getprofile() is None


def test_walks_are_counted() -> None:
    """Each operation goes down into the domain, the table has a row for it, and no append grows longer: a call for each word would."""
    counted = list(walks())

    assert all(walk.calls_in("domain") and walk.calls_in("projections") for walk in counted)
    assert len(counted) + 2 == len(make_table(counted).splitlines())
    assert counted[0].calls.total() <= 202, (
        "of an append of one message; five fewer in the millisecond of the one before it"
    )
    assert len(counted[0].files) <= 46
