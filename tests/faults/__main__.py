"""
The soak: `python -m tests.faults --seed 1 --minutes 30`, or `make soak SEED=1 MINUTES=30`.

The same seed makes the same plan: who writes what, who dies where, which bit of which file flips. When a signal meets a process
is up to the machine.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from tests.faults import soak
from tests.faults.soak import Totals

FULL_MINUTES = 30
FULL_KILLS, FULL_CORRUPTIONS, FULL_TRIALS, FULL_ERASURES = 500, 200, 600, 66
FULL_CUTS = 36


def main() -> int:
    """Run all parts, print a table, and write all figures as JSON. 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, help="in all; the full soak takes 30")
    parser.add_argument("--out", type=Path, default=Path("build/soak.json"), help="where the figures go")
    parser.add_argument(
        "--only",
        choices=["kills", "network", "disk", "rot", "damage", "erasure", "power", "cluster", "load"],
        action="append",
    )
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="chatledger-soak-"))
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    totals = Totals()
    run_parts(base, given.seed, given.minutes * 60, given.only or [], totals, say)
    figures = describe(totals, given.seed, (time.monotonic() - began) / 60)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(table(totals))
    for one in totals.findings:
        print(f"FOUND {one}")
    if totals.findings:
        print(f"what was left is in {base}")
        return 1
    shutil.rmtree(base, ignore_errors=True)
    return 0


def run_parts(base: Path, seed: str, seconds: float, only: list[str], totals: Totals, say: soak.Say) -> None:
    """
    All parts, or some: kills 25 %, network 10 %, disk 5 %, rot 20 %, erasures about 15 %, power cuts and a cluster 10 % each, load
    a quarter of the time.

    The trials of the damage matrix are counted, 600 in the full soak, and take their time besides.
    """
    share = seconds / (FULL_MINUTES * 60)

    def is_wanted(part: str) -> bool:
        return not only or part in only

    if is_wanted("kills"):
        until = time.monotonic() + 0.25 * seconds
        soak.kills(base, seed, totals, say, until=until, least=int(FULL_KILLS * share))
    if is_wanted("network"):
        soak.network(base, seed, totals, say, seconds=0.1 * seconds)
    if is_wanted("disk"):
        soak.disk(base, seed, totals, say, rounds=max(1, int(4 * share)))
    if is_wanted("rot"):
        until = time.monotonic() + 0.2 * seconds
        soak.rot(base, seed, totals, say, until=until, least=int(FULL_CORRUPTIONS * share))
    if is_wanted("damage"):
        soak.damage(base, seed, totals, say, count=max(12, int(FULL_TRIALS * share)))
    if is_wanted("erasure"):
        soak.erasures(base, seed, totals, say, rounds=FULL_ERASURES if only else max(3, int(FULL_ERASURES * share)))
    if is_wanted("power"):
        until = time.monotonic() + (seconds if only == ["power"] else 0.1 * seconds)
        soak.power(base, seed, totals, say, until=until, least=max(8, int(FULL_CUTS * share)))
    if is_wanted("cluster"):
        soak.cluster(base, seed, totals, say, seconds=seconds if only == ["cluster"] else 0.1 * seconds)
    if is_wanted("load"):
        soak.load(base, totals, say, seconds=min(600.0, seconds / 4))


def describe(totals: Totals, seed: str, minutes: float) -> dict[str, Any]:
    """All figures as JSON values."""
    return {
        "seed": seed,
        "minutes": round(minutes, 1),
        "findings": totals.findings,
        "skipped": totals.skipped,
        "kill_count": totals.kill_count,
        "kills": dict(totals.kills),
        "points": dict(totals.points),
        "corruption_count": totals.corruption_count,
        "corruptions": {place: dict(row) for place, row in totals.corruptions.items()},
        "indexes": dict(totals.sabotages),
        "operations": dict(totals.sums),
        "damages": {how: dict(row) for how, row in totals.damages.items()},
        "network": dict(totals.network),
        "disk": dict(totals.disk),
        "erasures": dict(totals.erasures),
        "cluster": {
            "faults": dict(totals.faults),
            "counts": totals.cluster.counts,
            "errors": totals.cluster.errors,
        },
        "power": {kind: dict(row) for kind, row in totals.power.items()},
        "load": None if totals.load is None else msgspec.to_builtins(totals.load),
    }


def table(totals: Totals) -> str:
    """Describe the outcome, for people."""
    rows = [
        ("kills", totals.kill_count),
        *(((f"  {name}", count) for name, count in totals.kills.most_common())),
        ("pauses", totals.sums["pauses"]),
        ("files damaged or removed", totals.corruption_count),
        *(
            (f"  {place}: {outcome}", count)
            for place, row in totals.corruptions.items()
            for outcome, count in row.items()
        ),
        *((f"  {how}: {outcome}", count) for how, row in totals.damages.items() for outcome, count in row.items()),
        ("connections cut", totals.network["connections cut"]),
        ("times the disk was full", totals.disk["times full"]),
        *((f"erasures: {name}", count) for name, count in totals.erasures.items()),
        *((f"power cuts, {kind}: {name}", count) for kind, row in totals.power.items() for name, count in row.items()),
        ("faults of the cluster", totals.faults.total()),
        *((f"  {name}", count) for name, count in totals.faults.most_common()),
        *((f"cluster: {name}", count) for name, count in sorted(totals.cluster.counts.items())),
        *((f"cluster: {name}", count) for name, count in sorted(totals.cluster.errors.items())),
        ("operations", totals.sums["operations"]),
        ("  acknowledged", totals.sums["acknowledged"]),
        ("  refused", totals.sums["refused"]),
        ("  of unknown outcome: happened", totals.sums["settled"]),
        ("  of unknown outcome: did not", totals.sums["open"]),
        ("found", len(totals.findings)),
    ]
    lines = [f"{name:<60} {count:>10,}" for name, count in rows]
    if totals.load is not None:
        one = totals.load
        lines.append(
            f"load: {one.writes:,} appends, ms in each third: p50 {one.append_p50_ms}, p99 {one.append_p99_ms}"
        )
        for name in ("memory_kb", "server_memory_kb", "threads", "descriptors", "consumers"):
            values = [getattr(sample, name) for sample in one.samples]
            lines.append(f"  {name}: first {values[0]:,}, most {max(values):,}, last {values[-1]:,}")
    return "\n".join([*lines, *(f"skipped: {one}" for one in totals.skipped)])


if __name__ == "__main__":
    sys.exit(main())
