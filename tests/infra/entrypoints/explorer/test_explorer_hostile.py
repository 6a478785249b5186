"""Pages of a ledger in which everything is hostile: titles, names, owners, metadata, messages, files."""

from collections.abc import Generator
from urllib.parse import quote

import httpx
import pytest
from tests.support.explorer_world import hostile_ledger, pages_of
from tests.support.hostile_markup import PAYLOADS, faults_in
from tests.support.soak import IS_SOAK

SOME = PAYLOADS if IS_SOAK else PAYLOADS[::5]
"""Each part of a message is tried with all of them elsewhere."""


@pytest.fixture(scope="module")
def pages() -> Generator[httpx.Client]:
    """Pages of a ledger with a chat for each payload."""
    with hostile_ledger(SOME) as ledger, pages_of(ledger) as client:
        yield client


def test_lists_are_harmless(pages: httpx.Client) -> None:
    """All pages of the list of chats: titles, owners, ids in links."""
    seen = 0
    after: str | None = ""
    while after is not None:
        page, values = (pages.get(path, params={"after": after}) for path in ("/", "/chats.json"))
        seen, after = seen + len(values.json()["rows"]), values.json()["next"]

        assert [] == faults_in(page.text)
    assert len(SOME) == seen


def test_chats_are_harmless(pages: httpx.Client) -> None:
    """Chats with a payload in each place that is shown."""
    for number in range(len(SOME)):
        page = pages.get(f"/c/chat-{number}")

        assert page.status_code == 200, SOME[number]
        assert [] == faults_in(page.text), SOME[number]


@pytest.mark.guard
def test_questions_are_harmless(pages: httpx.Client) -> None:
    """What is asked for is shown too: in forms, links and errors."""
    for payload in SOME:
        asked: dict[str, str] = dict.fromkeys(("q", "owner", "branch", "next", "after"), payload)
        for path in ("/", "/sign-in", "/c/chat-0", f"/c/{quote(payload, safe='')}", f"/?at={quote(payload, safe='')}"):
            page = pages.get(path, params=None if "?" in path else asked)

            assert [] == faults_in(page.text), payload
