"""Timing competitors in turns."""

import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

Show = Literal["time", "rate", "bytes"]
_BLOCK_BYTES: Final = 512  # the unit of st_blocks, whatever the file system


class ResultsDifferError(Exception):
    """Ours and theirs did not give the same answer, so their times must not be compared."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """
    One comparison.

    Args:
        subject: The module it comes from.
        name: What was done.
        peer: Whom we are compared with.
        show: Whether samples are shown as times, as rates (their inverse), or as bytes. Less is better in all of them.
        ours, theirs: Samples, in the order they were taken: seconds for one operation (of one message where rates are
            shown), or bytes.
        note: What a reader must know to judge it.
    """

    subject: str
    name: str
    peer: str
    show: Show = "time"
    ours: list[float]
    theirs: list[float]
    note: str = ""

    @property
    def ratio(self) -> float:
        """Theirs over ours, of the medians: above 1 we need less."""
        return statistics.median(self.theirs) / statistics.median(self.ours)

    @property
    def ratio_range(self) -> tuple[float, float]:
        """The lowest and the highest ratio of two samples that were taken one after the other."""
        ratios = [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        return min(ratios), max(ratios)


def check_equal(what: str, ours: Any, theirs: Any) -> None:
    """Raise `ResultsDifferError` unless both are equal."""
    if ours != theirs:
        msg = f"{what}: the answers differ: ours {_excerpt(ours)}, theirs {_excerpt(theirs)}"
        raise ResultsDifferError(msg)


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:500]}... ({len(text):,} characters)"


_LEAST: Final = 3
_PATIENCE_S: Final = 3.0
_READY_S: Final = 120.0
"""Processes that are not ready by then have died, and the others would wait for them for ever."""
_LONG: Final = 20
"""A call that takes so many times as long as a sample needs no repetition, however cold it was."""


def take_turns(
    runs: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    sample_s: float = 0.0,
    is_warm: bool = True,
    are_all_needed: bool = False,
) -> dict[str, list[float]]:
    """
    Seconds per call of each, taken in turns: what disturbs the machine disturbs all of them.

    Args:
        runs: What to call, by name. The answer is dropped before the next call.
        repeats: How many samples of each; of calls that take long, fewer, but three if that many are wanted.
        sample_s: A sample repeats a shorter call until it takes about so long.
        is_warm: Whether each is called before, which also finds out how often to repeat it.
        are_all_needed: No sample is left out, as each adds to what is measured afterwards.
    """
    # What was written before is on the disk first; else its write-back slows down whoever syncs in the meantime.
    os.sync()
    # What others left in memory is not looked at again by the collector, neither between samples nor within.
    gc.collect()
    gc.freeze()
    try:
        counts = {name: _calls_per_sample(run, sample_s) if is_warm else 1 for name, run in runs.items()}
        samples: dict[str, list[float]] = {name: [] for name in runs}
        begun = time.perf_counter()
        for turn in range(repeats):
            if not are_all_needed and turn >= _LEAST and time.perf_counter() - begun > _PATIENCE_S:
                break
            # Who goes first changes, so that nobody always finds the caches as a certain other one left them.
            for name in runs if turn % 2 == 0 else reversed(list(runs)):
                samples[name].append(_sample(runs[name], counts[name]))
        return samples
    finally:
        gc.unfreeze()


def _calls_per_sample(run: Callable[[], object], sample_s: float) -> int:
    took = _sample(run, 1)
    if took < sample_s * _LONG:
        took = _sample(run, 1)
    return max(1, round(sample_s / took))


def _sample(run: Callable[[], object], calls: int) -> float:
    # The collector stays on, as it is for users; but nobody pays for another's garbage.
    gc.collect()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def run_together(work: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> tuple[float, list[Any]]:
    """
    Run a function in processes that begin at the same moment.

    Args:
        work: Takes its arguments, a barrier to wait at when it is ready, and a queue for its answer.
        arguments: Those of each process.

    Returns:
        Seconds from that moment until all have answered, and the answers.
    """
    spawning = multiprocessing.get_context("spawn")
    start, ended = spawning.Barrier(len(arguments) + 1), spawning.Queue()
    # As daemons, so that those that wait for one that died do not keep this process from its end.
    workers = [spawning.Process(target=work, args=(*one, start, ended), daemon=True) for one in arguments]
    for worker in workers:
        worker.start()
    start.wait(_READY_S)
    began_s = time.perf_counter()
    answers = [ended.get() for _ in workers]
    took_s = time.perf_counter() - began_s
    for worker in workers:
        worker.join()
    return took_s, answers


def bytes_on_disk(path: Path) -> int:
    """Bytes of the blocks that a file, or all files below a folder, take: holes in them take none."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_blocks for file in files) * _BLOCK_BYTES
