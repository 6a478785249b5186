"""The page of a chat while another process writes: what it writes is there at once, after the server came back too."""

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

import chatledger
from chatledger import Ledger, user

SEEN_WITHIN_S = 0.1
WATCH = """() => {
  window.seen = {};
  new MutationObserver(() => {
    for (const one of document.querySelectorAll("#path article")) {
      window.seen[one.dataset.message] ??= (performance.timeOrigin + performance.now()) / 1000;
    }
  }).observe(document.body, { childList: true, subtree: true });
}"""


@contextmanager
def server_of(folder: Path, port: int = 0) -> Generator[str]:
    """Serve a folder from another process; gives the link for a browser."""
    command = [sys.executable, "-m", "chatledger", "serve", "--port", str(port), "--no-access-log", "-l", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(line for line in process.stdout if line.startswith("explore ")).split()[-1]
        finally:
            process.terminate()


def delays_of(page: Page, ledger: Ledger, name: str, count: int = 7) -> list[float]:
    """Seconds from an append of this process until the page of the other one's server has the message."""
    delays: list[float] = []
    for number in range(count):
        message_id = f"{name}-{number}"
        ledger.append("trip", [user(message_id, id=message_id)])
        written_at = time.time()
        expect(page.locator(f"#m-{message_id}")).to_be_attached()
        seen_at: float = page.evaluate("id => window.seen[id]", message_id)
        delays.append(seen_at - written_at)
        time.sleep(0.5)  # a page is read a few times a second at most
    return delays


@pytest.mark.soak
def test_what_another_process_writes_is_seen_at_once(browser: Browser, tmp_path: Path) -> None:
    """Without a reload, a message is there within 100 ms where nothing else keeps the machine busy; after a restart too."""
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("trip", "local")
        ledger.append("trip", [user("Where?", id="first")])
        with browser.new_context() as context:
            page = context.new_page()
            with server_of(tmp_path / "data") as link:
                page.goto(link)
                url = urlsplit(link)
                page.goto(f"{url.scheme}://{url.netloc}/c/trip")
                expect(page.locator("cl-graph [role=treeitem]").first).to_be_attached()
                page.evaluate(WATCH)
                before = delays_of(page, ledger, "before")
            ledger.append("trip", [user("meanwhile", id="meanwhile")])
            with server_of(tmp_path / "data", url.port or 0):
                expect(page.locator("#m-meanwhile")).to_be_attached()
                after = delays_of(page, ledger, "after")

    assert min(before) < SEEN_WITHIN_S
    assert min(after) < SEEN_WITHIN_S
