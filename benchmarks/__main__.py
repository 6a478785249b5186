"""The command: `python -m benchmarks`."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from .measure import ResultsDifferError
from .report import make_table, write_docs
from .suite import SUBJECTS, Result, run
from .world import FULL, QUICK

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
PAGE = _HERE.parent / "docs" / "explanation" / "performance.md"


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, less than a minute; for a first look and for CI.")
@click.option("--only", multiple=True, type=click.Choice(list(SUBJECTS)), help="Only this subject; may be repeated.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    help="Where to keep the result.  [default: benchmarks/results/<time>.json]",
)
@click.option("--write-docs", is_flag=True, help="Put the table into docs/explanation/performance.md.")
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
    from_file: Path | None,
    folder: Path | None,
) -> None:
    """Measure chatledger against the SQLite schema of @deepagents/context, in one run, and check that the answers are equal."""
    console = Console()
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
    if write_docs:
        write_docs_page(result)


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
    """Put the table of a result into the page about performance."""
    write_docs(PAGE, result)


if __name__ == "__main__":
    main()
