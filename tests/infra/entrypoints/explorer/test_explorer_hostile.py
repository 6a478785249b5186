"""Whole pages of a ledger in which everything is hostile: titles, names, owners, metadata, messages, files."""

from collections.abc import Generator
from urllib.parse import quote

import httpx
import pytest
from tests.support.explorer_world import hostile_ledger, pages_of
from tests.support.hostile_markup import PAYLOADS, faults_in


@pytest.fixture(scope="module")
def pages() -> Generator[httpx.Client]:
    """Pages of a ledger with a chat for each payload."""
    with hostile_ledger() as ledger, pages_of(ledger) as client:
        yield client


def test_lists_are_harmless(pages: httpx.Client) -> None:
    """All pages of the list of chats: titles, owners, ids in links."""
    seen = 0
    path: str | None = "/"
    while path is not None:
        page, values = pages.get(path), pages.get(path.replace("/", "/chats.json", 1)).json()
        seen += len(values["rows"])
        path = None if values["next"] is None else str(httpx.URL("/", params={"after": values["next"]}))

        assert [] == faults_in(page.text)
    assert len(PAYLOADS) == seen


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_chats_are_harmless(pages: httpx.Client, number: int) -> None:
    """A chat with a payload in each place that is shown."""
    page = pages.get(f"/c/chat-{number}")

    assert page.status_code == 200
    assert [] == faults_in(page.text)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_questions_are_harmless(pages: httpx.Client, payload: str) -> None:
    """What is asked for is shown too: in forms, links and errors."""
    paths = ["/", "/sign-in", "/c/chat-0"]
    asked = [pages.get(path, params=dict.fromkeys(("q", "owner", "at", "branch", "next"), payload)) for path in paths]
    asked.append(pages.get(f"/c/{quote(payload, safe='')}"))

    assert [] == [fault for page in asked for fault in faults_in(page.text)]
