"""The explorer below a path of a proxy, in a browser: what scripts ask for lies there too."""

import re
from collections.abc import Generator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect
from tests.support.browser_world import Demo
from tests.support.explorer_world import demo_ledger
from tests.support.http_world import serving

from chatledger import user
from chatledger.server import create_app


@pytest.fixture
def below() -> Generator[Demo]:
    """A server that a proxy shows below a path."""
    with demo_ledger() as ledger, serving(create_app(ledger, root_path="/ledger")) as url:
        yield Demo(url, ledger.blocking())


def test_pages_and_their_scripts_stay_below_the_path(page: Page, below: Demo) -> None:
    """The graph, the slider and the feed ask for rows, steps and events."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page.goto(f"{below.url}/ledger/")
    with page.expect_response(re.compile("/ledger/c/riga/steps")):
        page.get_by_role("link", name="A weekend in Riga").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("A weekend in Riga")
    expect(page.get_by_role("treeitem").first).to_be_attached()
    page.goto(f"{below.url}/ledger/log")
    below.ledger.create_chat("grows", "ada")
    below.ledger.append("grows", [user("leeks")])
    expect(page.locator("tbody tr").first).to_contain_text("leeks")

    assert [] == [path for path in asked if not path.startswith("/ledger/")]
    assert any(path.startswith("/ledger/api/v1/feed") for path in asked)
    assert any("/steps" in path for path in asked)
    assert any("/rows" in path for path in asked)
