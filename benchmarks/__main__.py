"""The command: `python -m benchmarks`."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from .compare import compare_results, last_two, make_comparison
from .curves import CURVES
from .measure import ResultsDifferError
from .plots import write_plots
from .report import make_table, write_docs
from .suite import SUBJECTS, Result, run
from .world import FULL, QUICK

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
PAGE = _HERE.parent / "docs" / "explanation" / "performance.md"
IMAGES = PAGE.parent / "images"


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, less than a minute; for a first look and for CI.")
@click.option(
    "--only", multiple=True, type=click.Choice([*SUBJECTS, CURVES]), help="Only this subject; may be repeated."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    help="Where to keep the result.  [default: benchmarks/results/<time>.json]",
)
@click.option("--write-docs", is_flag=True, help="Put the table and the plots into docs/explanation.")
@click.option("--compare", is_flag=True, help="Compare the last two kept results of the size instead of running.")
@click.option(
    "--from", "from_file", type=click.Path(path_type=Path, exists=True), help="Show a kept result instead of running."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where the files of the run are made; its disk is what is measured.  [default: the system's temporary folder]",
)
def main(
    *,
    quick: bool,
    only: tuple[str, ...],
    json_file: Path | None,
    write_docs: bool,
    compare: bool,
    from_file: Path | None,
    folder: Path | None,
) -> None:
    """Measure chatledger against the SQLite schema of @deepagents/context, in one run, and check that the answers are equal."""
    console = Console()
    if compare:
        _compare(console, "quick" if quick else "full")
        return
    if from_file is not None:
        result = msgspec.json.decode(from_file.read_bytes(), type=Result)
    else:
        result = _run(quick=quick, only=only, folder=folder)
        kept = json_file or RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{result.sizes}.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
        console.print(f"kept as {kept}", style="dim", highlight=False)
    console.print(make_table(result))
    console.print(f"{result.machine}; sizes: {result.sizes}", style="dim", highlight=False)
    took = ", ".join(f"{name} {seconds:.0f}" for name, seconds in result.took_s.items())
    console.print(f"seconds: {sum(result.took_s.values()):.0f} ({took})", style="dim", highlight=False)
    if write_docs:
        write_docs_page(result)


def _compare(console: Console, sizes: str) -> None:
    try:
        before, after = last_two(RESULTS, sizes)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    results = [msgspec.json.decode(path.read_bytes(), type=Result) for path in (before, after)]
    console.print(f"{before.name} and {after.name}", style="dim", highlight=False)
    console.print(make_comparison(compare_results(*results)))


def _run(*, quick: bool, only: tuple[str, ...], folder: Path | None) -> Result:
    progress = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="chatledger-bench-", dir=folder) as root,
        progress.status("starting") as status,
    ):
        try:
            return run(Path(root), QUICK if quick else FULL, only=only, report=status.update)
        except ResultsDifferError as error:
            raise click.ClickException(str(error)) from error


def write_docs_page(result: Result) -> None:
    """Put the table of a result into the page about performance, and draw its plots."""
    write_docs(PAGE, result)
    write_plots(IMAGES, result.curves)


if __name__ == "__main__":
    main()
