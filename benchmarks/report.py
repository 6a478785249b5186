"""Results as a table for the terminal and for the docs."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from .measure import Row, Show
from .suite import Result

BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
HEADINGS = ("", "compared with", "chatledger", "theirs", "ratio")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """The texts of a row."""
    low, high = row.ratio_range
    ratio = format_ratio(row.ratio)
    if len(row.ours) > 1:
        ratio += f" ({format_ratio(low)} to {format_ratio(high)})"
    return row.name, row.peer, format_samples(row.ours, row.show), format_samples(row.theirs, row.show), ratio


def make_table(result: Result) -> Table:
    """The table for the terminal."""
    table = Table(title="median (lowest to highest); ratio = theirs / chatledger, above 1 chatledger is ahead")
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right", overflow="fold")
    subject = None
    for row in result.rows:
        if subject not in {None, row.subject}:
            table.add_section()
        subject = row.subject
        *texts, ratio = cells(row)
        table.add_row(*texts, f"[{_colour(row.ratio)}]{ratio}[/]")
    return table


def _colour(ratio: float) -> str:
    if ratio > 1.1:
        return "green"
    return "red" if ratio < 0.9 else "yellow"


def make_markdown(result: Result) -> str:
    """The table for the docs, with the machine and the notes."""
    lines = [
        f"Run of {result.at[:10]}, sizes: {result.sizes}. {result.machine}.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    notes: list[str] = []
    for row in result.rows:
        if row.note not in notes:
            notes.append(row.note)
        name, *others = cells(row)
        lines.append(f"| {name} [{notes.index(row.note) + 1}] | " + " | ".join(others) + " |")
    lines.append("")
    lines.extend(f"{number}. {note}." for number, note in enumerate(notes, 1))
    return "\n".join(lines)


def write_docs(page: Path, result: Result) -> None:
    """Put the table between the markers of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"{page} has no markers {BEGIN} and {END}"
        raise ValueError(msg)
    page.write_text(f"{before}{BEGIN}\n\n{make_markdown(result)}\n\n{END}{after}", encoding="utf-8")


def format_samples(samples: Sequence[float], show: Show) -> str:
    """Return the median of samples, with the lowest and the highest."""
    median = statistics.median(samples)
    match show:
        case "bytes":
            return f"{median / 1e6:.1f} MB"
        case "rate":
            values = [1 / median, 1 / max(samples), 1 / min(samples)]
            texts, unit = [f"{value:,.0f}" for value in values], "/s"
        case "time":
            unit, factor = _time_unit(median)
            texts = [_digits(seconds * factor) for seconds in (median, min(samples), max(samples))]
    if len(samples) == 1:
        return f"{texts[0]} {unit}"
    return f"{texts[0]} {unit} ({texts[1]} to {texts[2]})"


def _time_unit(seconds: float) -> tuple[str, float]:
    if seconds >= 1:
        return "s", 1
    return ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)


def _digits(value: float) -> str:
    """At least three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_ratio(ratio: float) -> str:
    """A ratio as it is read."""
    return f"{ratio:.4f}x" if ratio < 0.01 else f"{_digits(ratio)}x"
