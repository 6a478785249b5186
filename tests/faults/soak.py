"""The parts of a soak: each returns what it did and what it found."""

import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.faults import matrix
from tests.faults.calls import WEIGHTS
from tests.faults.campaign import Campaign
from tests.faults.cluster_judge import ClusterVerdict
from tests.faults.cluster_nemesis import run_nemesis
from tests.faults.erasures import MEMORY
from tests.faults.erasures import Bench as ErasureBench
from tests.faults.erasures import Result as ErasureResult
from tests.faults.erasures import tally as tally_erasures
from tests.faults.erasures import trials as erasure_trials
from tests.faults.load import LoadReport
from tests.faults.nursery import ROOT
from tests.faults.powercuts import KINDS, Judgement, cut_power
from tests.faults.powercuts import tally as tally_cuts
from tests.faults.powerdisk import powered, why_missing
from tests.faults.rot import Bench, Result, tally, trials
from tests.faults.surroundings import RemoteServer, fill_up, free, small_disk

Say = Callable[[str], None]
_SUMS: Final = ("events", "operations", "acknowledged", "refused", "settled", "open", "deletions")


@dataclass
class Totals:
    """Totals over all parts of a soak."""

    kills: Counter[str] = field(default_factory=Counter[str])
    points: Counter[str] = field(default_factory=Counter[str])
    sabotages: Counter[str] = field(default_factory=Counter[str])
    sums: Counter[str] = field(default_factory=Counter[str])
    corruptions: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    damages: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    network: Counter[str] = field(default_factory=Counter[str])
    disk: Counter[str] = field(default_factory=Counter[str])
    erasures: Counter[str] = field(default_factory=Counter[str])
    power: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    faults: Counter[str] = field(default_factory=Counter[str])
    """Those of the cluster."""
    cluster: ClusterVerdict = field(default_factory=ClusterVerdict)
    load: LoadReport | None = None
    findings: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])

    @property
    def kill_count(self) -> int:
        """Number of processes that died by signal 9."""
        return sum(self.kills.values())

    @property
    def corruption_count(self) -> int:
        """How often files were damaged or removed."""
        outcomes = ("intact", "detected", "crashed", "FAILED")
        return sum(self.sabotages.values()) + sum(row[name] for row in self.corruptions.values() for name in outcomes)

    def take(self, where: str, campaign: Campaign) -> bool:
        """Add a campaign that is over; False when something was found."""
        report, verdict = campaign.report, campaign.report.verdict
        self.kills.update(report.kills)
        self.sums["pauses"] += report.pauses
        self.sabotages.update(report.sabotages)
        self.points.update(verdict.deaths)
        for name in _SUMS:
            self.sums[name] += getattr(verdict, name)
        found = [*report.faults, *verdict.failures, *verdict.findings]
        self.findings += [f"{where}, seed {campaign.seed!r}: {one}" for one in found]
        return not found


def kills(
    base: Path,
    seed: str,
    totals: Totals,
    say: Say,
    *,
    until: float,
    least: int = 0,
    phases: int = 3,
    phase_s: float = 15,
) -> None:
    """Rounds of writers that die, each on a directory of its own, whose index is removed or damaged in between."""
    for number in itertools.count():
        if time.monotonic() > until and totals.kill_count >= least:
            return
        durability = "fast" if number % 2 else "always"
        with Campaign(base / f"kills-{number}", f"{seed}/kills/{number}", durability=durability) as campaign:
            for phase in range(phases):
                campaign.phase(phase_s)
                verdict = campaign.check()
                if verdict.findings or verdict.failures or campaign.report.faults:
                    break
                if phase < phases - 1:
                    campaign.sabotage_index()
            is_sound = totals.take("kills", campaign)
        say(f"kills: round {number}, {totals.kill_count} kills, {totals.sums['acknowledged']:,} acknowledged")
        if not is_sound:
            return


def network(base: Path, seed: str, totals: Totals, say: Say, *, seconds: float) -> None:
    """Writers with an index each, at a server that dies, behind a network that is slow and cuts connections."""
    remote = RemoteServer(base / "network", seed)
    try:
        with Campaign(
            base / "network",
            f"{seed}/network",
            location=f"{remote.location}/soak",
            indexes=True,
            kill_server=remote.kill,
            weights=dict(WEIGHTS),
        ) as campaign:
            _create(f"{remote.location}/soak", base / "network" / "index-judge")
            campaign.phase(seconds)
            remote.network.is_bad = False
            campaign.check()
            totals.take("network", campaign)
        totals.network.update({"connections cut": remote.network.cuts, "bytes delayed": remote.network.delays})
    finally:
        remote.close()
    say(f"network: {remote.network.cuts} connections cut, {remote.network.delays} deliveries delayed")


def _create(location: str, index: Path) -> None:
    import chatledger

    chatledger.open(location, index=index, create=True).close()


def disk(base: Path, seed: str, totals: Totals, say: Say, *, rounds: int, phase_s: float = 8) -> None:
    """Writers on a disk that fills up, again and again, and is freed again."""
    with small_disk(base / "disk") as folder:
        if folder is None:
            totals.skipped.append("full disk: nothing can be mounted here, which takes root")
            return
        # Journals stay outside: they tell what happened also when nothing can be written there.
        with Campaign(base / "disk-journals", f"{seed}/disk", location=str(folder / "data"), timeout_s=3) as campaign:
            campaign.data = folder / "data"
            campaign.phase(phase_s, calm=True, is_full=True)
            for _ in range(rounds):
                fill_up(folder)
                campaign.phase(phase_s, calm=True, is_full=True)
                free(folder)
                totals.disk["times full"] += 1
                campaign.phase(phase_s, is_full=True)  # rebuilds fill so small a disk by themselves
            campaign.check()
            totals.take("disk", campaign)
        say(f"disk: {totals.disk['times full']} times full")


def rot(base: Path, seed: str, totals: Totals, say: Say, *, until: float, least: int) -> None:
    """Damage to files of the log and the index, one copy of a ledger after another."""
    bench = Bench(base / "rot")
    bench.prepare()
    results: list[Result] = []
    try:
        for trial in trials(base / "rot", f"{seed}/rot"):
            if time.monotonic() > until and len(results) >= least:
                break
            results.append(bench.ask(trial))
            if len(results) % 25 == 0:
                say(f"rot: {len(results)} trials")
    finally:
        bench.close()
    totals.corruptions = tally(results)
    for one in results:
        if one.outcome == "FAILED":
            facts = f"{one.trial.template}, {one.trial.place}, {one.trial.how}"
            totals.findings.append(f"rot, seed {one.trial.seed!r} ({facts}): {one.stage}: {one.error}")


def damage(base: Path, seed: str, totals: Totals, say: Say, *, count: int) -> None:
    """Damage to the blocks of a log, crossed with all that could vouch for them."""
    table, findings = matrix.run(base / "damage", f"{seed}/damage", count, say)
    totals.damages = table
    totals.findings += findings


def erasures(base: Path, seed: str, totals: Totals, say: Say, *, rounds: int) -> None:
    """Erasures whose process, server or both are killed, and a look at every byte after the next open and close."""
    if not MEMORY.is_dir():
        totals.skipped.append(f"erasures: there is no {MEMORY}, where the indexes of encrypted ledgers lie")
        return
    results: list[ErasureResult] = []
    with ErasureBench(base / "erasures") as bench:
        for trial in itertools.islice(erasure_trials(f"{seed}/erasures"), rounds):
            results.append(bench.run(trial))
            if len(results) % 20 == 0:
                say(f"erasures: {len(results)} rounds")
    totals.erasures = tally_erasures(results)
    for one in results:
        totals.findings += [f"erasures, {one.trial}: {finding}" for finding in one.findings]


def power(base: Path, seed: str, totals: Totals, say: Say, *, until: float, least: int) -> None:
    """Cuts of the power under writers, each on a new ledger; in every second round writers and servers are killed, too."""
    if (missing := why_missing()) is not None:
        totals.skipped.append(f"power cuts: {missing}")
        return
    results: dict[str, list[Judgement]] = {kind: [] for kind in KINDS}
    with powered(base / "power") as the_disk:
        for number in itertools.count():
            count = sum(map(len, results.values()))
            if time.monotonic() > until and count >= least:
                break
            kind, name = KINDS[number % len(KINDS)], f"{seed}/power/{number}"
            is_calm = number // len(KINDS) % 2 == 0
            for judgement in cut_power(the_disk, base / f"power-{number}", name, kind, count=4, is_calm=is_calm):
                results[kind].append(judgement)
                wrong = [*judgement.verdict.findings, *judgement.verdict.failures, *judgement.remains]
                totals.findings += [f"power, {kind}, seed {name!r}: {one}" for one in wrong]
            say(f"power: round {number}, {kind}, {sum(map(len, results.values()))} cuts")
    totals.findings = list(dict.fromkeys(totals.findings))  # the journals are the same for each cut of a round
    totals.power = {kind: tally_cuts(of_kind) for kind, of_kind in results.items()}


def cluster(base: Path, seed: str, totals: Totals, say: Say, *, seconds: float) -> None:
    """Three servers and three clients, of which each may be cut off, killed, paused or wiped, and a judge of their own."""
    totals.faults, totals.cluster = run_nemesis(base / "cluster", f"{seed}/cluster", seconds)
    totals.findings += [f"cluster, seed {seed!r}: {finding}" for finding in totals.cluster.findings]
    say(f"cluster: {totals.faults.total()} faults, {totals.cluster.counts.get('calls acknowledged', 0):,} acknowledged")


def load(base: Path, totals: Totals, say: Say, *, seconds: float, writers: int = 64) -> None:
    """Many writers, feeds and readers; nothing grows."""
    order: dict[str, Any] = {"data": str(base / "load"), "seconds": seconds}
    order |= {"writers": writers, "feeds": 8, "readers": 4}
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.load", json.dumps(order)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds + 600,
        check=False,
    )
    if done.returncode:
        totals.findings.append(f"load: ended with {done.returncode}: {done.stderr[-2000:]}")
        return
    totals.load = msgspec.json.decode(done.stdout.splitlines()[-1], type=LoadReport)
    totals.findings += [f"load: {one}" for one in totals.load.findings]
    say(f"load: {totals.load.writes:,} writes in {seconds:.0f} s")
