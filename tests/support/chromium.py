"""Chromium for tests, pictures and comparisons."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

PATIENCE_MS: Final = 60_000
"""How long tests wait for a page: on a machine that others keep busy it is late, not wrong."""
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Where Chromium is: named by CHATLEDGER_CHROMIUM, or on the path."""
    named = os.environ.get("CHATLEDGER_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def open_browser() -> Generator[Browser]:
    """Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        browser.close()
