"""`bench`: how fast it is on this machine, with these conversations, next to SQLite."""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from ...admin.bench import Comparison, compare_with_sqlite, generated_chats
from ...exchange.readers import read_chats
from ...log.nats_server.directory import Durability
from .options import WholeNumber, json_option
from .output import console, print_json, print_text, pulse

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@click.command("bench")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--chats",
    metavar="N",
    type=WholeNumber(1, 100_000),
    default=20,
    show_default=True,
    help="Without FILE: so many chats are made up.",
)
@click.option(
    "--messages",
    metavar="N",
    type=WholeNumber(1, 100_000),
    default=500,
    show_default=True,
    help="Without FILE: so many messages in each of them.",
)
@click.option(
    "--durability",
    type=click.Choice(("always", "fast")),
    default="always",
    show_default=True,
    help="Whether each write is on the disk when it returns; on both sides.",
)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Whose disk is measured; the system's temporary folder by default.",
)
@json_option
def bench_command(
    *, file: Path | None, chats: int, messages: int, durability: Durability, folder: Path | None, as_json: bool
) -> None:
    """
    Measure the speed on this machine, next to SQLite.

    Takes the conversations of FILE, of any format that 'chatledger import' reads, or makes some up; stores them in a temporary
    ledger and in a temporary SQLite file with a recursive query and FTS5; asks both the same, in turns; and removes
    everything at the end. The ledger of --location is not touched. Above 1, chatledger is ahead.
    """
    with tempfile.TemporaryDirectory(prefix="chatledger-bench-", dir=folder) as place, pulse("reading") as say:
        if file is None:
            stored = list(generated_chats(chats, messages))
        else:
            stored = list(read_chats(file, on_problem=lambda _: None))
        found = compare_with_sqlite(stored, Path(place), durability=durability, report=say)
    if as_json:
        print_json(
            [{"name": one.name, "ours_s": one.ours_s, "sqlite_s": one.theirs_s, "ratio": one.ratio} for one in found]
        )
        return
    console().print(_table(found))
    print_text("median (lowest to highest) for one operation; ratio = SQLite / chatledger", "dim")


def _table(found: Sequence[Comparison]) -> Table:
    table = Table()
    for number, heading in enumerate(("", "chatledger", "SQLite", "ratio")):
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for one in found:
        table.add_row(one.name, _times(one.ours_s), _times(one.theirs_s), f"{one.ratio:,.2f}x")
    return table


def _times(samples: Sequence[float]) -> str:
    median = statistics.median(samples)
    factor, unit = next((pair for pair in _UNITS if median >= pair[0]), _UNITS[-1])
    texts = [f"{seconds / factor:.3g}" for seconds in (median, min(samples), max(samples))]
    return f"{texts[0]} {unit}" if len(samples) == 1 else f"{texts[0]} {unit} ({texts[1]} to {texts[2]})"
