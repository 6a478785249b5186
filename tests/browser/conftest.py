"""A browser and a server on the sample conversations, one of each for all tests here."""

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.support.browser_world import Demo, demo_server, findings
from tests.support.chromium import PATIENCE_MS, chromium, open_browser

HERE = Path(__file__).parent
OPEN = ExitStack()
SHOTS = HERE.parent.parent / "build" / "screenshots"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder drive a browser, and wait as long as a busy machine needs."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("browser")
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def browser() -> Browser:
    """The browser of all tests."""
    if chromium() is None:
        pytest.skip("no Chromium was found: install it (Debian: apt-get install chromium) or set CHATLEDGER_CHROMIUM")
    expect.set_options(timeout=PATIENCE_MS)
    return OPEN.enter_context(open_browser())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """Close the browser after the last test of this folder: Playwright's event loop runs in the thread of the tests."""
    yield
    if nextitem is None or not nextitem.path.is_relative_to(HERE):
        OPEN.close()


@pytest.fixture(scope="session")
def demo() -> Generator[Demo]:
    """A server on a ledger with the sample conversations. Tests that write make chats of their own."""
    with demo_server() as demo:
        yield demo


@pytest.fixture
def context(browser: Browser, demo: Demo) -> Generator[BrowserContext]:
    """A browser without history, on the server."""
    context = browser.new_context(base_url=demo.url, viewport={"width": 1200, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Generator[Page]:
    """A page, which fails the test when a script fails or the policy of the page stops something."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield page
    assert [] == [problem for problem in problems if "status of 4" not in problem]


@pytest.fixture
def check_page(page: Page) -> Callable[[str], None]:
    """Keeps a picture of what is shown in both themes, and fails where axe finds something: `check_page("chats")`."""

    def check(name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            page.screenshot(path=SHOTS / f"{name}-{theme}.png", full_page=True)

            assert [] == findings(page), f"{name}, {theme}"

    return check
