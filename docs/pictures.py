"""
Make the pictures of the explorer that the README and the documentation show.

    python -m docs.pictures

They are taken of the sample conversations and of the tutorial's, at fixed times and in a window of a fixed size. It needs
Chromium. Fonts differ between machines, so tests look at what is shown and not at pixels.
"""

import contextlib
import io
import re
import runpy
import tempfile
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple
from unittest import mock

import PIL.Image
from click.testing import CliRunner
from playwright.sync_api import Browser, Page
from tests.support.chromium import open_browser
from tests.support.http_world import serving

import chatledger
from chatledger.infra import clock
from chatledger.infra.entrypoints.cli.app import cli
from chatledger.server import create_app

FOLDER: Final = Path(__file__).parent / "images"
TUTORIAL: Final = Path(__file__).parent / "tutorial" / "why-did-the-agent-say-that.md"
MOST_BYTES: Final = 120_000
WIDTH: Final = 1280
_COLOURS: Final = 256
_SCRIPT: Final = re.compile(r"^<!-- file: agent\.py -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DEMO_AT: Final = datetime(2026, 3, 15, 9, tzinfo=UTC)
_SETTLED_MS: Final = 500
_TICK_MS: Final = 40_000
TUESDAY: Final = "2026-03-10T23:59:59Z"
_DAYS: Final = (
    datetime(2026, 3, 9, 16, 2, tzinfo=UTC),
    datetime(2026, 3, 10, 8, 31, tzinfo=UTC),
    datetime(2026, 3, 12, 11, 20, tzinfo=UTC),
    datetime(2026, 3, 16, 9, 5, tzinfo=UTC),
)


class Picture(NamedTuple):
    """A picture: its file, the page it is taken of, and the height of the window in pixels."""

    name: str
    path: str
    height: int


PICTURES: Final = (
    Picture("explorer.png", "/c/riga?m=riga-6", 720),
    Picture("explorer-thread.png", "/agents/research-2", 720),
    Picture("explorer-search.png", '/search?q="30+days"', 470),
    Picture("explorer-fork.png", "/c/kettle?m=answer-1", 640),
    Picture("explorer-then.png", f"/c/kettle?at={TUESDAY}", 620),
    Picture("explorer-diff.png", "/c/kettle/diff?left=main&right=main-v2", 620),
)


@contextlib.contextmanager
def pictured(folder: Path) -> Generator[str]:
    """Serve the ledger that the pictures show, which is made in a folder; gives the address."""
    location = str(folder / "data")
    with at(_DEMO_AT):
        done = CliRunner().invoke(cli, ["demo", "--location", location], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    ledger = chatledger.open_async(location)
    with ledger.blocking() as blocking:
        script = folder / "agent.py"
        script.write_text(script_of(TUTORIAL), encoding="utf-8")
        days: tuple[Callable[[chatledger.Ledger], None], ...] = runpy.run_path(str(script))["DAYS"]
        for day, moment in zip(days, _DAYS, strict=True):
            with at(moment):
                day(blocking)
        with serving(create_app(ledger)) as url:
            yield url


@contextlib.contextmanager
def at(moment: datetime) -> Generator[None]:
    """Let what is written be written at a moment, each time that the clock is read 40 seconds later."""
    now = int(moment.timestamp() * 1000)

    def time_ns() -> int:
        nonlocal now
        now += _TICK_MS
        return now * 1_000_000

    with mock.patch.object(clock, "time", SimpleNamespace(time_ns=time_ns)):
        yield


def script_of(page: Path) -> str:
    """The script that a page has a reader write."""
    found = _SCRIPT.search(page.read_text(encoding="utf-8"))
    assert found is not None, f"{page} has no agent.py"
    return found[1]


def take(browser: Browser, url: str, picture: Picture) -> bytes:
    """Take a picture, with few colours so that it stays small."""
    context = browser.new_context(
        base_url=url,
        viewport={"width": WIDTH, "height": picture.height},
        color_scheme="light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    with contextlib.closing(context):
        page = context.new_page()
        answer = page.goto(picture.path)
        assert answer is not None, picture.path
        assert answer.ok, f"{picture.path}: {answer.status}"
        _settle(page)
        return _small(page.screenshot())


def _settle(page: Page) -> None:
    """Wait until all that comes later is there."""
    if page.locator("cl-graph").count():
        page.locator('cl-graph [role="treeitem"]').first.wait_for(state="attached")
        page.locator("cl-time rect").first.wait_for(state="attached")
    page.wait_for_timeout(_SETTLED_MS)
    page.evaluate("scrollTo(0, 0)")


def _small(png: bytes) -> bytes:
    image = (
        PIL.Image.open(io.BytesIO(png))
        .convert("RGB")
        .quantize(_COLOURS, method=PIL.Image.Quantize.MAXCOVERAGE, kmeans=3, dither=PIL.Image.Dither.NONE)
    )
    kept = io.BytesIO()
    image.save(kept, "PNG", optimize=True)
    return kept.getvalue()


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, pictured(Path(folder)) as url, open_browser() as browser:
        for picture in PICTURES:
            (FOLDER / picture.name).write_bytes(take(browser, url, picture))


if __name__ == "__main__":
    main()
