"""Ten questions of somebody who sees nothing but the demo, each answered by what stands on the screen: by links, buttons and one date."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.support.chromium import PATIENCE_MS
from tests.support.cli_world import run
from tests.support.http_world import serving

import chatledger
from chatledger.server import create_app

PHONE = 390


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A server on what `chatledger demo` leaves in a fresh folder."""
    folder: Path = tmp_path_factory.mktemp("demo") / "ledger"
    assert run("demo", "--location", str(folder)).exit_code == 0
    ledger = chatledger.open_async(str(folder))
    with ledger.blocking(), serving(create_app(ledger)) as url:
        yield url


@pytest.fixture(params=[1440, PHONE])
def reader(browser: Browser, home: str, request: pytest.FixtureRequest) -> Generator[Page]:
    """A window or a phone, on the first page."""
    context = browser.new_context(base_url=home, viewport={"width": request.param, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto("/")
    yield page
    context.close()


def rail(page: Page, name: str) -> None:
    """Go to a page of the rail, which a phone has behind a button."""
    if page.get_by_role("button", name="Pages").is_visible():
        page.get_by_role("button", name="Pages").click()
    page.get_by_role("navigation").get_by_role("link", name=re.compile(f"^{name}")).click()


def trip(page: Page) -> None:
    """Open the chat that stands first, and wait for the scripts."""
    page.get_by_role("link", name="A weekend in Riga").first.click()
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^now"))


def pane(page: Page, name: str) -> None:
    """Show a pane, on a phone, which has one at a time."""
    if page.viewport_size and page.viewport_size["width"] == PHONE:
        page.get_by_role("button", name=name, exact=True).click()


def test_where_does_it_fork(reader: Page) -> None:
    """The fork stands in the path, and opened it says where else it went on; one presses it to read that."""
    trip(reader)
    reader.get_by_text("2 of 2").first.click()
    reader.locator(".ways").get_by_role("link", name=re.compile("What does it cost")).click()
    expect(reader.locator("article").last).to_contain_text("About 3")


def test_what_was_edited(reader: Page) -> None:
    """The forks are listed, and the answer that was given anew shows its changes."""
    trip(reader)
    reader.get_by_label("Branch", exact=False).first.select_option("main-v2")
    expect(reader.locator("article").last).to_contain_text("organ concert")
    reader.get_by_role("link", name="changes").click()
    expect(reader.locator(".edited ins").first).to_have_text("360")
    expect(reader.locator(".edited del").first).to_have_text("320")


def test_what_did_the_agent_do_in_which_order(reader: Page) -> None:
    rail(reader, "Agents")
    reader.get_by_role("link", name=re.compile("research-2")).first.click()
    pane(reader, "Steps")
    steps = [text for text in reader.locator(".trace li b").all_inner_texts() if not text.startswith("1 other")]
    assert steps[:9] == [
        "input",
        "start",
        "plan",
        "ask",
        "3 nodes",
        "read_notes",
        "search_papers",
        "search_web",
        "fork",
    ]


def test_what_waits_for_an_answer(reader: Page) -> None:
    """The list of chats says that something waits; two presses lead to the question, and to how it is answered."""
    reader.get_by_role("link", name="1 thread waits").click()
    reader.get_by_role("link", name=re.compile("research-2")).first.click()
    pane(reader, "Step")
    expect(reader.get_by_role("region", name="Waits for you")).to_contain_text("Publish this report?")
    expect(reader.get_by_text('Command(resume="publish")').last).to_be_in_viewport()


def test_what_failed_and_why(reader: Page) -> None:
    rail(reader, "Agents")
    reader.get_by_role("link", name=re.compile("^Failed")).click()
    expect(reader.get_by_text("RateLimitError: 429 too many requests").first).to_be_in_viewport()


def test_how_was_it_last_tuesday(reader: Page) -> None:
    """A date leads there; where the chat was not there yet, the page says why, and leads back. A step back shows what was then."""
    trip(reader)
    reader.keyboard.press("Control+k")
    reader.keyboard.type("@last tuesday")
    reader.get_by_role("dialog").get_by_role("option", name=re.compile("^As of")).click()
    expect(reader.get_by_role("heading", name="There was no chat")).to_be_visible()
    reader.get_by_role("link", name="Show now").click()
    reader.get_by_role("button", name="Step back").click()
    expect(reader.locator(".as-of")).to_contain_text("As of")
    reader.locator(".as-of").get_by_role("link", name="Now").click()
    expect(reader.locator(".as-of")).to_have_count(0)


def test_who_said_a_phrase_first(reader: Page) -> None:
    rail(reader, "Search")
    reader.get_by_role("searchbox").fill("train")
    reader.keyboard.press("Enter")
    reader.get_by_role("link", name="Oldest").click()
    first = reader.locator("main li").filter(has=reader.locator("mark")).first
    expect(first).to_contain_text("A weekend in Riga")
    expect(first).to_contain_text("assistant: Saturday: the Old Town")


def test_how_do_two_ways_differ(reader: Page) -> None:
    trip(reader)
    if reader.viewport_size and reader.viewport_size["width"] == PHONE:
        reader.get_by_label("More", exact=True).click()
    reader.get_by_role("link", name="Compare").locator("visible=true").first.click()
    reader.get_by_role("link", name="main", exact=True).click()
    expect(reader.get_by_text("2 messages in common")).to_be_visible()
    expect(reader.get_by_text("Can we do that by bicycle")).to_be_visible()


def test_what_did_it_cost(reader: Page) -> None:
    trip(reader)
    pane(reader, "Message")
    expect(reader.locator("#inspector")).to_contain_text("1,181 tokens · $0.0006")


def test_who_did_what_last(reader: Page) -> None:
    """The log begins with the newest, in words, and leads to where it was."""
    rail(reader, "Log")
    row = reader.locator("main").get_by_role("link", name="A weekend in Riga").first
    expect(row).to_be_in_viewport()
    row.click()
    expect(reader.locator("article").first).to_be_visible()
