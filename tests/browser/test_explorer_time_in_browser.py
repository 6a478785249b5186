"""The strip of time in a browser: bars, pauses and days of a chat that was written over months."""

import re
from collections.abc import Generator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.support.access_world import at_moment
from tests.support.browser_world import Demo
from tests.support.http_world import serving

import chatledger
from chatledger import user
from chatledger.server import create_app

DAY_S = 86_400
START_S = 1_772_456_400
"""2 March 2026."""

BURSTS = {0: 1, 90: 5, 240: 100}
"""Messages by the day on which they were written, all of one second."""


@pytest.fixture(scope="module")
def months(browser: Browser) -> Generator[Page]:
    """The page of a chat that was written in three bursts over eight months."""
    opened = chatledger.open_async("memory:")
    with opened.blocking() as ledger:
        with at_moment(START_S):
            ledger.create_chat("months", "ada", title="Months")
        for day, count in BURSTS.items():
            with at_moment(START_S + day * DAY_S):
                for number in range(count):
                    ledger.append("months", [user(f"day {day}, message {number}")])
        with serving(create_app(opened)) as url:
            context = browser.new_context(base_url=url, viewport={"width": 1440, "height": 900}, timezone_id="UTC")
            page = context.new_page()
            page.goto("/c/months")
            expect(page.locator(".time-axis .bar").first).to_be_attached()
            yield page
            context.close()


def test_bars_tell_when_how_much_was_said(months: Page) -> None:
    """Three heights of bars, pauses of months as breaks with their length, the first and the last day below."""
    heights = months.locator(".time-axis .bar").evaluate_all(
        "bars => bars.map((bar) => [Number(bar.getAttribute('x')), Math.round(Number(bar.getAttribute('height')))])"
    )
    first, second = heights[0][1], heights[1][1]
    assert first < second < max(height for _, height in heights)
    texts = months.locator(".time-axis text").all_text_contents()
    assert {"3 months", "5 months", "2 Mar"} <= {text.strip() for text in texts}, texts
    assert any("28 Oct" in text for text in texts), texts


def test_a_moment_of_months_ago(months: Page) -> None:
    """The strip leads to it; bars after it are pale, and the header says which day it is."""
    months.keyboard.press("t")
    months.keyboard.press("Home")
    for _ in range(4):
        months.keyboard.press("ArrowRight")
    expect(months.locator(".as-of")).to_contain_text("31 May")
    expect(months.locator("article")).to_have_count(4)
    assert months.locator(".time-axis .bar.later").count() >= 1
    months.keyboard.press("n")
    expect(months.locator(".as-of")).to_have_count(0)


def test_what_came_at_once_says_so(page: Page, demo: Demo) -> None:
    """Where all steps lie within a minute, as those of an import, they stand one beside the other, and the axis says so."""
    demo.ledger.create_chat("at-once", "ada")
    for count in (14, 1, 4):
        demo.ledger.append("at-once", [user(f"message {number}") for number in range(count)])
    page.goto("/c/at-once")
    expect(page.locator("cl-time")).to_contain_text("all within")
    heights = page.locator(".time-axis .bar").evaluate_all("bars => bars.map((bar) => bar.getAttribute('height'))")

    assert len(set(heights)) == 3
    demo.ledger.delete_chat("at-once")


def test_a_step_is_shown_at_once_and_many_when_they_rest(browser: Browser, demo: Demo) -> None:
    """By the page's clock: one press asks without waiting; of presses one after the other the last, 90 ms later."""
    with browser.new_context(base_url=demo.url, viewport={"width": 1440, "height": 900}) as context:
        page = context.new_page()
        page.goto("/")
        expect(page.locator("[data-action=palette]")).to_be_visible()
        page.keyboard.press("t")
        slider = page.get_by_role("slider")
        expect(slider).to_have_attribute("aria-valuetext", re.compile("^now"))
        page.clock.install()
        page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/?at=" in request.url else None)
        press = "slider => { slider.stepDown(); slider.dispatchEvent(new Event('input', { bubbles: true })); }"
        with page.expect_request("**/?at=*"):
            slider.evaluate(press)
            page.clock.run_for(1)
        for _ in range(3):
            slider.evaluate(press)
            page.clock.run_for(20)
        assert len(asked) == 1
        with page.expect_request("**/?at=*"):
            page.clock.run_for(90)

        assert len(asked) == 2
