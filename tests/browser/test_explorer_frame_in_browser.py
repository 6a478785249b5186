"""The frame of the explorer in a browser: keys, themes, narrow windows, accessibility."""

from collections.abc import Callable

from playwright.sync_api import Page, expect


def test_chats(page: Page, check_page: Callable[[str], None]) -> None:
    """The list of chats leads to a chat; axe finds nothing in either theme."""
    page.goto("/")
    check_page("chats")
    page.get_by_role("link", name="A weekend in Riga").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("A weekend in Riga")


def test_keys_are_shown(page: Page) -> None:
    """`?` shows the keys, unless somebody types."""
    page.goto("/")
    page.keyboard.press("?")

    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_theme_stays(page: Page) -> None:
    """The chosen theme is that of the next page too, from its first paint."""
    page.emulate_media(color_scheme="light")
    page.goto("/")
    page.get_by_role("button", name="Theme").click()
    page.goto("/c/riga")

    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_narrow_window(page: Page) -> None:
    """At the width of a phone nothing lies beyond the edge."""
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/", "/c/riga", "/c/none"):
        page.goto(path)

        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
