"""The frame of the explorer in a browser: keys, themes, narrow windows, accessibility, hostile content."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from tests.support.browser_world import Demo
from tests.support.explorer_world import demo_ledger, hostile_ledger
from tests.support.hostile_markup import PAYLOADS
from tests.support.http_world import serving

from chatledger import user
from chatledger.server import KeyFile, create_app


def test_chats(page: Page, check_page: Callable[[str], None]) -> None:
    """The list of chats leads to a chat by the keyboard alone; axe finds nothing in either theme."""
    page.goto("/")
    check_page("chats")
    page.keyboard.press("/")
    page.keyboard.type("sigulda cab")
    expect(page).to_have_url(re.compile(r"q=sigulda\+cab$"))
    expect(page.locator("tr[data-chat]")).to_have_count(1)
    expect(page.locator(".snippet mark").first).to_have_text("Sigulda")
    check_page("chats-filtered")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("A weekend in Riga")
    check_page("chat")


def test_signing_in(page: Page, tmp_path: Path, check_page: Callable[[str], None]) -> None:
    """A server with keys asks for one, says where it is wrong, and leads on to the page that was asked for."""
    keys = KeyFile(tmp_path / "keys")
    key = keys.add("ada", user_id="ada", scopes=frozenset({"read"}))
    with demo_ledger() as ledger, serving(create_app(ledger, authenticate=keys)) as url:
        page.goto(f"{url}/search?q=riga")
        check_page("sign-in")
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("Nobody is known by this key")
        check_page("sign-in-wrong")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Search")

        expect(page).to_have_url(f"{url}/search?q=riga")
        page.goto("about:blank")  # else its feed outlives the server


def test_chats_are_seen_changing(page: Page, demo: Demo) -> None:
    """A chat that somebody else makes appears without a reload, and is marked."""
    with page.expect_response("**/api/v1/feed**"):
        page.goto("/")
    demo.ledger.create_chat("fresh", "ada", title="A fresh chat")
    demo.ledger.append("fresh", [user("hello")])

    expect(page.get_by_role("link", name="A fresh chat")).to_be_visible()
    expect(page.locator('tr[data-chat="fresh"]')).to_have_class("changed")
    demo.ledger.delete_chat("fresh")
    expect(page.get_by_role("link", name="A fresh chat")).to_have_count(0)


def test_slider_of_the_ledger(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """The list of chats is as it was at each step of the ledger, read-only, and comes back to now; what is written is a step."""
    page.goto("/")
    expect(page.locator("cl-time")).to_have_count(0)
    page.keyboard.press("t")
    slider = page.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^now, step (\d+) of \1$"))
    expect(page.locator("cl-time rect").first).to_be_attached()
    rows = page.locator("tr[data-chat]")
    count = rows.count()
    page.keyboard.press("Home")
    expect(page.locator(".as-of")).to_contain_text("read-only")
    expect(page.get_by_role("heading", name="No chats yet")).to_be_visible()
    first = next(one for one in demo.ledger.history() if not one.event.rest)
    slider.fill(str(first.position - 1))
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile(f"at={first.position}$"))
    check_page("chats-then")
    demo.ledger.create_chat("later", "ada", title="Later than that")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(f"step {first.position} of {demo.ledger.position}"))
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="Now", exact=True).click()
    expect(page.locator(".as-of")).to_have_count(0)
    expect(rows).to_have_count(count + 1)
    demo.ledger.delete_chat("later")


def test_keys_and_theme(page: Page) -> None:
    """`?` shows the keys; the chosen theme is that of the next page too, from its first paint."""
    page.emulate_media(color_scheme="light")
    page.goto("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.get_by_role("button", name="Theme").click()
    page.goto("/c/riga")

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_narrow_window(page: Page) -> None:
    """At the width of a phone nothing lies beyond the edge."""
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/", "/?q=the", "/c/riga", "/c/none"):
        page.goto(path)

        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_nothing_runs(browser: Browser) -> None:
    """Whatever people write in messages, titles, names, files: no script runs, and nothing is asked of other servers."""
    with hostile_ledger() as ledger, serving(create_app(ledger)) as url:
        context = browser.new_context(base_url=url)
        page = context.new_page()
        faults: list[str] = []
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        page.on(
            "request", lambda request: None if request.url.startswith((url, "data:")) else faults.append(request.url)
        )
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        for path in ("/", "/chats.json", *(f"/c/chat-{number}" for number in range(0, len(PAYLOADS), 8))):
            page.goto(path)
            page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")

            assert page.evaluate("window.pwned") is None, path
        context.close()

    assert [] == faults
