"""The explorer on a demo ledger: served on a real socket, and clients that ask for its pages."""

from collections.abc import Generator
from contextlib import contextmanager

import httpx
from tests.support.http_world import serving

import chatledger
from chatledger.infra.entrypoints.demo import sample_chats
from chatledger.server import create_app

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


@contextmanager
def demo_ledger() -> Generator[chatledger.AsyncLedger]:
    """A ledger in memory with the sample conversations; tests write to it by `ledger.blocking()`."""
    ledger = chatledger.open_async("memory:")
    with ledger.blocking() as blocking:
        with blocking.context(actor="demo"):
            for sample in sample_chats():
                blocking.import_chat(sample)
        yield ledger


@contextmanager
def pages_of(ledger: chatledger.AsyncLedger) -> Generator[httpx.Client]:
    """A client that asks for pages as a browser does, but runs no scripts."""
    with serving(create_app(ledger)) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client:
        yield client
