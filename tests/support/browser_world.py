"""Helpers of browser tests: a server with the sample conversations, and what axe says of a page."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from tests.support.explorer_world import demo_ledger
from tests.support.http_world import serving

import chatledger
from chatledger.server import create_app


class Demo(msgspec.Struct, frozen=True):
    """A server: its address, and its ledger for tests that write."""

    url: str
    ledger: chatledger.Ledger


@contextmanager
def demo_server() -> Generator[Demo]:
    """Serve a ledger in memory with the sample conversations."""
    with demo_ledger() as ledger, serving(create_app(ledger)) as url:
        yield Demo(url, ledger.blocking())


def findings(page: Page) -> list[str]:
    """List what is inaccessible on a page, by axe: each rule with the elements that break it."""
    axe: Any = Axe()
    # Targets of at least 24 pixels, or with as much room, which WCAG 2.2 asks for, are off by default.
    options = {"rules": {"target-size": {"enabled": True}}}
    violations: list[dict[str, Any]] = axe.run(page, options=options).response["violations"]
    return [
        f"{found['id']}: {' '.join(str(target) for node in found['nodes'] for target in node['target'])}"
        for found in violations
    ]
