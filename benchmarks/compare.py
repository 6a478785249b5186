"""Two kept results, row by row: what became better or worse by more than the noise."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from rich.table import Table

from .measure import Row
from .report import format_ratio
from .suite import Result

Verdict = Literal["faster", "slower", "same", "new", "gone"]
_LEAST = 0.05
"""A change of less is never told from noise."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """
    The outcome of the comparison of a row.

    Args:
        before, after: The ratios, theirs over ours, of the two results; None where it has no such row.
        noise: By which share the ratios of single samples spread around their median, in both together.
        verdict: `same` as long as the change is not above the noise.
    """

    subject: str
    name: str
    peer: str
    before: float | None
    after: float | None
    noise: float
    verdict: Verdict


def compare_results(before: Result, after: Result) -> list[Change]:
    """The changes from one result to another, in the order of the later one; rows that are gone at the end."""
    old, new = ({_key(row): row for row in result.rows} for result in (before, after))
    keys = [*new, *(key for key in old if key not in new)]
    return [_change(key, old.get(key), new.get(key)) for key in keys]


def _key(row: Row) -> tuple[str, str, str]:
    return row.subject, row.name, row.peer


def _change(key: tuple[str, str, str], before: Row | None, after: Row | None) -> Change:
    subject, name, peer = key
    noise = (_spread(before) ** 2 + _spread(after) ** 2) ** 0.5
    return Change(
        subject=subject,
        name=name,
        peer=peer,
        before=None if before is None else before.ratio,
        after=None if after is None else after.ratio,
        noise=noise,
        verdict=_verdict(before, after, noise),
    )


def _verdict(before: Row | None, after: Row | None, noise: float) -> Verdict:
    if before is None:
        return "new"
    if after is None:
        return "gone"
    gain = after.ratio / before.ratio
    least = 1 + max(noise, _LEAST)
    if gain > least:
        return "faster"
    return "slower" if gain < 1 / least else "same"


def _spread(row: Row | None) -> float:
    """Half the range in which the middle half of the ratios lies, as a share of their median."""
    if row is None or len(row.ours) < 2:
        return 0.0
    ratios = [theirs / ours for ours, theirs in zip(row.ours, row.theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return (high - low) / middle


def make_comparison(changes: Sequence[Change]) -> Table:
    """The table for the terminal."""
    table = Table(title="ratio = theirs / chatledger; a change counts when it is above the noise of both runs")
    for number, heading in enumerate(("", "compared with", "before", "after", "change", "noise", "")):
        table.add_column(heading, justify="left" if number in {0, 1, 6} else "right", overflow="fold")
    colours = {"faster": "green", "slower": "red", "same": "dim", "new": "cyan", "gone": "cyan"}
    for change in changes:
        both = change.before is not None and change.after is not None
        gain = f"{(change.after or 0) / (change.before or 1) - 1:+.0%}" if both else ""
        ratios = ["" if ratio is None else format_ratio(ratio) for ratio in (change.before, change.after)]
        verdict = f"[{colours[change.verdict]}]{change.verdict}[/]"
        table.add_row(change.name, change.peer, *ratios, gain, f"±{change.noise:.0%}", verdict)
    return table


def last_two(folder: Path, sizes: str) -> tuple[Path, Path]:
    """
    The last two results of a size that are kept in a folder.

    Raises:
        ValueError: There are fewer.
    """
    kept = sorted(folder.glob(f"*-{sizes}.json"))
    if len(kept) < 2:
        msg = f"{len(kept)} results of the size {sizes!r} in {folder}; two are needed: run 'make bench' again"
        raise ValueError(msg)
    return kept[-2], kept[-1]
