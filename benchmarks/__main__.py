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
    "--go-on",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The kept result of a run that was broken off: only what it lacks is run, and put into it.",
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
    go_on: Path | None,
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
        sizes = "quick" if quick else "full"
        kept = go_on or json_file or RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{sizes}.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        result = _run(kept, quick=quick, only=only, folder=folder, is_begun=go_on is not None)
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


def _run(kept: Path, *, quick: bool, only: tuple[str, ...], folder: Path | None, is_begun: bool) -> Result:
    """Run the subjects; what was found is kept after each of them."""
    sizes, progress = QUICK if quick else FULL, Console(stderr=True)
    so_far = msgspec.json.decode(kept.read_bytes(), type=Result) if is_begun else None
    if so_far is not None and so_far.sizes != sizes.name:
        msg = f"{kept} was run with the sizes {so_far.sizes}, not {sizes.name}"
        raise click.ClickException(msg)

    def keep(result: Result) -> None:
        kept.write_bytes(msgspec.json.format(msgspec.json.encode(result)))

    with (
        tempfile.TemporaryDirectory(prefix="chatledger-bench-", dir=folder) as root,
        progress.status("starting") as status,
    ):
        try:
            result = run(Path(root), sizes, only=only, so_far=so_far, keep=keep, report=status.update)
        except ResultsDifferError as error:
            raise click.ClickException(str(error)) from error
    keep(result)
    return result


def write_docs_page(result: Result) -> None:
    """Put the table of a result into the page about performance, and draw its plots."""
    write_docs(PAGE, result)
    write_plots(IMAGES, result.curves)


if __name__ == "__main__":
    main()
