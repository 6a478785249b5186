"""Power cuts while writers write: each image of the disk is opened as after a boot, and judged by the journals."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final, Literal, get_args

import msgspec
from tests.faults.calls import WEIGHTS, content
from tests.faults.campaign import Campaign
from tests.faults.checking import Log, Verdict, check
from tests.faults.journal import OUTCOMES, Operation, lines, operations
from tests.faults.nursery import ROOT
from tests.faults.powerdisk import Keep, PowerDisk, after_boot
from tests.support.jetstream_world import eventually

import chatledger

Kind = Literal["always", "fast", "sqlite"]
KINDS: Final = get_args(Kind)
GRACE_S: Final = 2.5
"""So old is what "fast" has on the disk: synced each second, by a busy machine."""
_MORTAL: Final = "mortal"
_WEIGHTS: Final = {**WEIGHTS, "append large": 1, "delete": 10}
_LONGEST_S: Final = 300.0


class Cut(msgspec.Struct):
    """A cut: its image, when it was, and what was kept of the sectors that were not flushed."""

    image: Path
    at: float
    keep: Keep


class Judgement(msgspec.Struct):
    """Judgement of a cut: `remains` are files with messages of deleted chats, `visible` counts living ones."""

    verdict: Verdict
    remains: list[str] = []
    visible: int = 0
    erased: int = 0


def cut_power(disk: PowerDisk, base: Path, seed: str, kind: Kind, *, count: int, is_calm: bool) -> Iterator[Judgement]:
    """Let writers write to a new ledger, cut the power `count` times meanwhile, and judge each image; `is_calm` kills nobody besides."""
    dice = Random(seed)
    place = "sqlite:///{}/ledger/file.db" if kind == "sqlite" else "{}/ledger"
    data = disk.folder / "ledger"
    shutil.rmtree(data, ignore_errors=True)  # an earlier one
    if kind == "sqlite":
        data.mkdir()

    def cut_now_and_then() -> list[Cut]:
        cuts: list[Cut] = []
        eventually(lambda: data.is_dir() and any(data.iterdir()), within_s=60)
        for number in range(count):
            time.sleep(dice.uniform(0, 2.5))
            at, keep = time.monotonic(), dice.choice(get_args(Keep))
            cuts.append(Cut(disk.cut(keep, f"{seed}/{number}"), at, keep))
        return cuts

    durability = "fast" if kind == "fast" else "always"
    location = place.format(disk.folder)
    with (
        Campaign(base, seed, location=location, durability=durability, weights=_WEIGHTS) as campaign,
        ThreadPoolExecutor(1) as pool,
    ):
        campaign.data = data
        future = pool.submit(cut_now_and_then)
        campaign.phase(_LONGEST_S, calm=is_calm, is_over=future.done)
        cuts = future.result()
        faults = campaign.report.faults
    for cut in cuts:
        judgement = _judge(cut, base, place, kind)
        judgement.verdict.findings = [f"{cut.keep} kept: {finding}" for finding in judgement.verdict.findings] + faults
        if not judgement.verdict.findings and not judgement.remains:
            cut.image.unlink()
        faults = []
        yield judgement


def _judge(cut: Cut, base: Path, place: str, kind: Kind) -> Judgement:
    """Let a process look that sees the image as after a boot, and of the journals what was acknowledged before the cut."""
    folder = base / cut.image.stem
    folder.mkdir()
    until = cut.at - (GRACE_S if kind == "fast" else 0)
    for journal in base.glob("*.journal"):
        before = [line for line in lines(journal) if line["kind"] not in OUTCOMES or line["at"] < until]
        (folder / journal.name).write_text("".join(json.dumps(line) + "\n" for line in before))
    mounted = folder / "mnt"
    command = [sys.executable, "-m", "tests.faults.powercuts", place.format(mounted), str(mounted), str(folder)]
    try:
        done = subprocess.run(
            after_boot(cut.image, mounted, command),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Judgement(Verdict(findings=[f"NOT OPENED: no verdict on {cut.image} in {_LONGEST_S:.0f} s"]))
    if done.returncode:
        return Judgement(Verdict(findings=[f"NOT OPENED: {cut.image}: {done.stderr.strip().splitlines()[-1:]}"]))
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Judgement)


def main(location: str, mounted: Path, folder: Path) -> None:
    """Open what a cut left, compare it with the journals, write, close, and look for what was deleted; prints a `Judgement`."""
    journals = sorted(folder.glob("*.journal"))
    with chatledger.open(location, timeout_s=60) as ledger:
        judgement = Judgement(check(ledger, journals, is_dense=True))
        log = Log(list(ledger.history()), is_dense=True)
        log.check()
        ledger.append(ledger.create_chat(None, "u").id, [chatledger.user("writing goes on")])
        ledger.verify()
    marks = {_mark(message_id) for message_id in _erased(log, journals)}
    living = {_mark(message_id) for message_id in list(log.messages)[-100:]}
    judgement.erased = len(marks)
    for file in sorted(path for path in mounted.rglob("*") if path.is_file()):
        raw = file.read_bytes()
        judgement.visible += sum(mark in raw for mark in living)
        judgement.remains += [f"{file.relative_to(mounted)} has {mark.decode()}" for mark in marks if mark in raw]
    print(msgspec.json.encode(judgement).decode())


def _erased(log: Log, journals: list[Path]) -> set[str]:
    """Messages that were acknowledged in chats that are deleted now and then, and are not on the log."""
    done: list[Operation] = [one for journal in journals for one in operations(journal)]
    acknowledged = {
        message_id
        for one in done
        if one.acknowledged is not None and str(one.call.get("chat")).startswith(_MORTAL)
        for message_id in one.call.get("ids", ())
    }
    return acknowledged - log.messages.keys() - set(log.copies.values())


def _mark(message_id: str) -> bytes:
    """The beginning of a message's text, which no other message has."""
    return content(message_id)[: len(message_id) + 20].encode()


def tally(results: list[Judgement]) -> Counter[str]:
    """Count the outcome of cuts."""
    counts: Counter[str] = Counter(cuts=len(results))
    for judgement in results:
        findings = judgement.verdict.findings
        counts["acknowledged before"] += judgement.verdict.acknowledged
        counts["deletions on the log"] += judgement.verdict.deletions
        counts["messages erased"] += judgement.erased
        counts["not opened"] += any("NOT OPENED" in finding for finding in findings)
        counts["lost"] += sum("LOST" in finding for finding in findings)
        counts["files with deleted content"] += len(judgement.remains)
    return counts


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
