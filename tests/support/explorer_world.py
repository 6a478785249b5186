"""The explorer on a demo ledger: served on a real socket, and clients that ask for its pages."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import httpx
from tests.support.hostile_markup import PAYLOADS, hostile_messages
from tests.support.http_world import serving

import chatledger
from chatledger import NewMessage
from chatledger.infra.entrypoints.demo import sample_chats
from chatledger.infra.entrypoints.http.access import Authenticate
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
def pages_of(ledger: chatledger.AsyncLedger, *, authenticate: Authenticate | None = None) -> Generator[httpx.Client]:
    """A client that asks for pages as a browser does, but runs no scripts."""
    app = create_app(ledger, authenticate=authenticate)
    with serving(app) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client:
        yield client


@contextmanager
def hostile_ledger(payloads: Sequence[str] = PAYLOADS) -> Generator[chatledger.AsyncLedger]:
    """A ledger in memory with a chat for each hostile text, `chat-0`, `chat-1` ..., which has it wherever it may be."""
    ledger = chatledger.open_async("memory:")
    with ledger.blocking() as blocking:
        for number, payload in enumerate(payloads):
            chat_id = f"chat-{number}"
            blocking.create_chat(chat_id, printable(payload), title=payload, metadata={payload: payload})
            drafts = [
                NewMessage(name.replace("\0", ""), data, id=f"{chat_id}-{at}")
                for at, (name, data) in enumerate(hostile_messages(payload))
            ]
            blocking.append(chat_id, drafts)
            blocking.set_checkpoint(chat_id, printable(payload), f"{chat_id}-0")
        yield ledger


def printable(text: str) -> str:
    """A text as an id or a name may be: without control characters, and not too long."""
    return "".join(character for character in text if character.isprintable())[:100] or "none"
