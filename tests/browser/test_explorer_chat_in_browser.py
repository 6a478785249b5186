"""The page of a chat in a browser: graph, path and time slider go together, and what is written meanwhile is seen."""

import re
from collections.abc import Callable
from threading import Thread

import pytest
from playwright.sync_api import Page, expect
from tests.support.browser_world import Demo
from tests.support.ledger_world import index_held

from chatledger import assistant, user


@pytest.fixture(scope="module")
def trip(demo: Demo) -> str:
    """A chat with three answers to one question."""
    demo.ledger.create_chat("b-trip", "ada", title="A trip")
    demo.ledger.append("b-trip", [user("Where to?", id="b1")])
    demo.ledger.append("b-trip", [assistant("**Riga**, in May", id="b2")])
    for number, text in ((3, "Tallinn"), (4, "Vilnius")):
        demo.ledger.create_branch("b-trip", f"way-{number}", "b1")
        demo.ledger.append("b-trip", [assistant(text, id=f"b{number}")], branch=f"way-{number}")
    demo.ledger.set_checkpoint("b-trip", "decided", "b2")
    return "/c/b-trip"


@pytest.fixture
def shown(page: Page, trip: str) -> Page:
    """The page of the chat, with its graph drawn."""
    page.goto(trip)
    expect(page.locator('cl-graph [role="treeitem"]').first).to_be_attached()
    return page


def test_graph_and_path_go_together(shown: Page, check_page: Callable[[str], None]) -> None:
    """A row that is chosen in the graph is chosen in the path, which changes its branch for it; the URL keeps it."""
    expect(shown.locator("article").last).to_contain_text("Riga")
    check_page("chat")
    shown.keyboard.press("g")
    shown.keyboard.press("End")
    expect(shown.locator("#entries .chosen")).to_contain_text("Vilnius")
    expect(shown).to_have_url(re.compile("m=b4"))
    shown.reload()

    expect(shown.locator("#entries .chosen")).to_contain_text("Vilnius")


def test_found_and_chosen_messages(page: Page, check_page: Callable[[str], None]) -> None:
    """What was found is marked and leads to the message; axe finds nothing with every fold open."""
    page.goto("/c/riga?q=train&m=riga-6")
    expect(page.locator('cl-graph [role="treeitem"]').first).to_be_attached()
    expect(page.locator(".found mark")).to_have_count(4)
    expect(page.locator("#entries .chosen")).to_contain_text("Sigulda")
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")

    check_page("chat-found")


def test_versions_are_paged_through(shown: Page) -> None:
    """One goes through the answers to one question by a click or a key, and back."""
    expect(shown.locator(".versions")).to_contain_text("1/3")
    shown.get_by_role("link", name="Next version").click()
    expect(shown.locator("article").last).to_contain_text("Tallinn")
    shown.keyboard.press(".")
    expect(shown.locator("article").last).to_contain_text("Vilnius")
    shown.go_back()
    expect(shown.locator("article").last).to_contain_text("Tallinn")
    shown.keyboard.press("[")

    expect(shown.locator("#entries .chosen")).to_contain_text("Where to?")


def test_slider_shows_the_past_and_says_so(shown: Page, check_page: Callable[[str], None]) -> None:
    """Step by step the page is as it was; it is read-only, marks what the step did, and comes back to now."""
    slider = shown.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", "now, step 8 of 8")
    shown.keyboard.press("t")
    shown.keyboard.press("Home")
    shown.keyboard.press("ArrowRight")
    expect(shown.locator(".band")).to_contain_text("read-only")
    expect(shown.locator("article")).to_have_count(1)
    expect(shown.locator("article .chip")).to_contain_text("this step")
    expect(shown).to_have_url(re.compile("at="))
    check_page("chat-then")
    shown.get_by_role("button", name="Now").click()
    expect(shown.locator(".band")).to_have_count(0)

    expect(shown.locator("article").last).to_contain_text("Riga")


def test_what_others_write_is_seen(shown: Page, demo: Demo) -> None:
    """A message that another one appends is there without a reload, in path, graph and slider."""
    demo.ledger.append("b-trip", [user("Fine, and then?", id="b9")], branch="main")
    expect(shown.locator("article").last).to_contain_text("Fine, and then?")
    expect(shown.get_by_role("slider")).to_have_attribute("aria-valuetext", "now, step 9 of 9")

    expect(shown.locator('cl-graph [role="tree"]')).to_contain_text("Fine, and then?")


def test_reads_wait_for_what_the_feed_told(shown: Page, demo: Demo) -> None:
    """What the feed tells is in the index by then, as only that knows what was deleted: path, graph and slider show it."""
    answer = assistant("It takes a while", id="b10")
    with index_held(demo.ledger) as release:
        writer = Thread(target=demo.ledger.append, args=("b-trip", [answer]), kwargs={"branch": "main"})
        writer.start()
        with shown.expect_request(lambda request: request.url.endswith("rows=1"), timeout=10_000):
            release()
    writer.join()
    expect(shown.locator("article").last).to_contain_text("It takes a while")
    expect(shown.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile(r"now, step (\d+) of \1"))

    expect(shown.locator('cl-graph [role="tree"]')).to_contain_text("It takes a while")


def test_growing_answer_is_seen_growing(shown: Page, demo: Demo) -> None:
    """An answer is read while it is written, and is a message of the path when it is over, once."""
    with demo.ledger.live("b-trip", branch="main") as answer:
        answer.write("Old ")
        answer.flush()
        expect(shown.locator("cl-live")).to_contain_text("Old")
        answer.write("town")
        answer.flush()
        expect(shown.locator("cl-live")).to_contain_text("Old town")
        answer.commit()
    expect(shown.locator("cl-live")).to_have_count(0)

    expect(shown.locator("article").last).to_contain_text("Old town")


def test_narrow_chat(shown: Page) -> None:
    """At the width of a phone nothing lies beyond the edge, also of what is folded."""
    shown.set_viewport_size({"width": 360, "height": 740})
    shown.goto("/c/riga?q=train&m=riga-6")
    shown.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")

    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
