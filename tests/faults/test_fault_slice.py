"""A slice of the soak in `make test`; `make soak` does far more of the same, see `docs/explanation/reliability.md`."""

import itertools
import time
from pathlib import Path

import msgspec
import pytest
from tests.faults.campaign import judge
from tests.faults.checking import Log
from tests.faults.deaths import POINTS
from tests.faults.journal import Journal, operations
from tests.faults.load import LoadReport, Sample, judge_load
from tests.faults.rot import Bench, trials
from tests.faults.soak import Totals, damage, disk, erasures, kills, load, network, power

import chatledger
from chatledger import NewMessage

SEED = "slice"
pytestmark = pytest.mark.soak
PROCESSES, MACHINES = pytest.mark.xdist_group("faults of processes"), pytest.mark.xdist_group("faults of machines")
"""Two of these at once, and no more: each has many processes."""


def quiet(line: str) -> None:
    del line


@PROCESSES
def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    """Writers, their server, rebuilds and erasures are killed over and over; the index is removed in between."""
    totals = Totals()
    kills(tmp_path, SEED, totals, quiet, until=time.monotonic(), least=1, phases=2, phase_s=5)

    assert totals.findings == [], "\n".join(totals.findings)
    assert totals.kill_count >= 2  # how many fit into the time follows from what else the machine does
    assert totals.sums["acknowledged"] >= 20
    assert totals.sums["acknowledged"] + totals.sums["refused"] <= totals.sums["operations"]


@MACHINES
def test_a_bad_network_and_a_server_that_dies(tmp_path: Path) -> None:
    """Writers as if on several machines, each with an index of its own."""
    totals = Totals()
    network(tmp_path, SEED, totals, quiet, seconds=6)

    assert totals.findings == [], "\n".join(totals.findings)
    assert totals.sums["acknowledged"] >= 5


@PROCESSES
def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, and writing goes on when there is room again."""
    totals = Totals()
    disk(tmp_path, SEED, totals, quiet, rounds=1, phase_s=2)
    if totals.skipped:
        pytest.skip(totals.skipped[0])

    assert totals.findings == [], "\n".join(totals.findings)


@PROCESSES
def test_damaged_files(tmp_path: Path) -> None:
    """A copy with a damaged file either has everything, or a clear error says that it has not."""
    bench = Bench(tmp_path)
    bench.prepare()
    try:
        results = [bench.ask(trial) for trial in itertools.islice(trials(tmp_path, SEED), 14)]
    finally:
        bench.close()

    assert [one for one in results if one.outcome == "FAILED"] == []
    assert {one.outcome for one in results} == {"intact", "detected"}


@MACHINES
def test_an_interrupted_erasure_leaves_nothing(tmp_path: Path) -> None:
    """Its process, its server or both are killed; after the next open and close no byte is left in any file."""
    totals = Totals()
    erasures(tmp_path, SEED, totals, quiet, rounds=2)

    assert totals.findings == [], "\n".join(totals.findings)
    assert totals.skipped or totals.erasures["cut short"] >= 1


@MACHINES
def test_power_cuts(tmp_path: Path) -> None:
    """What a cut leaves opens, with everything that was acknowledged, and nothing of what was deleted."""
    totals = Totals()
    power(tmp_path, SEED, totals, quiet, until=time.monotonic(), least=1)
    if totals.skipped:
        pytest.skip(totals.skipped[0])

    assert totals.findings == [], "\n".join(totals.findings)
    assert totals.power["always"]["acknowledged before"] >= 20


@PROCESSES
def test_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    """A few cells of the damage matrix: no loss is silent, and what is refused was not changed."""
    totals = Totals()
    damage(tmp_path, SEED, totals, quiet, count=3)

    assert totals.findings == [], "\n".join(totals.findings)
    assert sum(sum(row.values()) for row in totals.damages.values()) == 3


@MACHINES
def test_load_leaves_nothing_behind(tmp_path: Path) -> None:
    """Threads, tasks, descriptors, consumers and memory are as many at the end as before."""
    totals = Totals()
    load(tmp_path, totals, quiet, seconds=5, writers=16)

    assert totals.findings == [], "\n".join(totals.findings)
    assert totals.load is not None
    assert totals.load.writes > 20


# The harness itself finds what it should


def test_the_judge_finds_what_is_missing_doubled_or_strange(tmp_path: Path) -> None:
    """An acknowledged append that is not on the log, one that is there twice, and one that nobody noted."""
    with Journal(tmp_path / "w.journal") as journal, chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        call = {"kind": "append", "chat": "c", "ids": ["lost"]}
        journal.write("intent", command_id="lost", call=call)
        journal.write("acknowledged", command_id="lost", answer=["lost"])
        journal.write("intent", command_id="refused", call={**call, "ids": ["refused"]})
        journal.write("refused", command_id="refused", error="HeadConflictError")
        with ledger.context(command_id="refused"):
            ledger.append("c", [NewMessage("user", "refused with other content", id="refused")])
        with ledger.context(command_id="stranger"):
            ledger.set_checkpoint("c", "mark", "refused")
    findings = judge(str(tmp_path / "data"), tmp_path).findings

    assert any(one.startswith("LOST: lost") for one in findings)
    assert any("refused was refused, and is at" in one for one in findings)
    assert any("message refused has another content" in one for one in findings)
    assert any("nobody noted the command stranger" in one for one in findings)


def test_the_judge_finds_holes_and_broken_chains(tmp_path: Path) -> None:
    """An event taken out, one moved, one altered."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        for number in range(6):
            ledger.append("c", [NewMessage("user", str(number))])
        events = list(ledger.history())
    altered = msgspec.structs.replace(events[3], hash=events[2].hash)
    for broken in (
        events[:3] + events[4:],
        [*events[:3], events[4], events[3], *events[5:]],
        [*events[:3], altered, *events[4:]],
        [*events, events[-1]],
    ):
        log = Log(broken, is_dense=True)
        log.check()
        assert [one for one in log.findings if "another content" not in one]


def test_a_journal_survives_the_death_of_its_writer(tmp_path: Path) -> None:
    """A line that was cut short does not count; an intent without an outcome may have happened or not."""
    path = tmp_path / "w.journal"
    with Journal(path) as journal:
        journal.write("intent", command_id="a", call={"kind": "append"})
        journal.write("acknowledged", command_id="a", answer=1)
        journal.write("intent", command_id="b", call={"kind": "append"})
    with path.open("ab") as file:
        file.write(b'{"kind":"acknowledged","command_id":"b"')
    one, other = operations(path)

    assert (one.answer, one.is_open) == (1, False)
    assert other.acknowledged is None
    assert other.is_open


def test_the_points_of_death_exist() -> None:
    """Every point where somebody may die is a method of the class that is named."""
    for owner, name, _ in POINTS.values():
        assert callable(getattr(owner, name))


def test_the_verdict_on_a_load_finds_growth() -> None:
    """Memory, threads, descriptors, consumers and latencies that grow are named."""

    def sample(number: int, **more: int) -> Sample:
        facts = dict.fromkeys(("memory_kb", "server_memory_kb"), 100_000) | {"at_s": number}
        facts |= dict.fromkeys(("threads", "tasks", "descriptors", "server_descriptors", "consumers"), 5)
        return Sample(**{**facts, **more})

    def report(samples: list[Sample], p50: list[float]) -> LoadReport:
        return LoadReport(
            seconds=600,
            writes=1,
            reads=1,
            fed=1,
            errors=[],
            append_p50_ms=p50,
            append_p99_ms=[9, 9, 9],
            read_p50_ms=[1, 1, 1],
            samples=samples,
        )

    flat = [sample(number) for number in range(30)]
    assert judge_load(report(flat, [2, 2, 2]), is_timed=True) == []
    for name, most in (
        ("memory_kb", 200_000),
        ("server_memory_kb", 300_000),
        ("threads", 9),
        ("descriptors", 99),
        ("consumers", 14),
    ):
        grown = [*flat[:20], *(sample(number, **{name: most}) for number in range(20, 30))]
        assert [one.partition(":")[0] for one in judge_load(report(grown, [2, 2, 2]), is_timed=True)] == [name]
    assert judge_load(report(flat, [2, 4, 8]), is_timed=True)
    assert judge_load(report(flat, [2, 4, 8]), is_timed=False) == []
