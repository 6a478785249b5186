"""Search, log, diff and proof in a browser: what moves there, and axe."""

from collections.abc import Callable

from playwright.sync_api import Page, Route, expect
from tests.support.browser_world import Demo

from chatledger import assistant, user

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


def test_search_leads_to_a_chat(page: Page, check_page: Callable[[str], None]) -> None:
    """Words are typed, and a hit leads to its chat."""
    page.goto("/search")
    check_page("search-empty")
    page.get_by_role("searchbox").fill("riga")
    page.keyboard.press("Enter")
    expect(page.locator("mark").first).to_have_text("Riga")
    check_page("search")
    page.get_by_role("link", name="A weekend in Riga").first.click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("A weekend in Riga")


def test_log_grows(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """What is written is seen without a reload, first; not while the log is paused."""
    page.goto("/log")
    demo.ledger.create_chat("grows", "ada", title=HOSTILE)
    first = page.locator("tbody tr").first
    expect(first).to_contain_text("grows")
    page.keyboard.press("p")
    demo.ledger.append("grows", [user("leeks")])
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    expect(first).to_contain_text("chat_created")
    page.keyboard.press("p")

    expect(first).to_contain_text("leeks")
    check_page("log")


def test_what_was_asked_for_before_a_pause_waits(page: Page, demo: Demo) -> None:
    """Rows that come while the log is paused are not shown, and are when it goes on."""
    page.goto("/log")
    rows = page.locator("tbody tr")
    # What other tests wrote may come before the page follows; asked for then, it would be held in the place of what is meant. So would
    # the question whether there is more, which the page asks when it has shown "early".
    with page.expect_response(lambda response: f"after={demo.ledger.last_position()}" in response.url):
        demo.ledger.create_chat("early", "ada")
    expect(rows.first).to_contain_text("early")
    before = rows.first.inner_text()
    held: list[Route] = []
    page.route("**/log/rows**", lambda route: held.append(route))  # noqa: PLW0108 - Playwright takes no builtin
    with page.expect_request("**/log/rows**"):
        demo.ledger.create_chat("late", "ada")
    page.keyboard.press("p")
    while not held:
        page.wait_for_timeout(10)  # the route is told after the request
    with page.expect_response("**/log/rows**") as response:
        held[0].continue_()
    response.value.finished()
    page.unroute_all()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    assert before == rows.first.inner_text()
    page.keyboard.press("p")

    expect(rows.first).to_contain_text("late")


def test_diff_marks_words(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """The words of an edited message are marked, and nothing hostile runs."""
    demo.ledger.create_chat("compared", "ada")
    demo.ledger.append("compared", [user("Where?", id="w1"), assistant(f"In the old town {HOSTILE}", id="w2")])
    demo.ledger.create_branch("compared", "other", "w1")
    demo.ledger.append("compared", [assistant(f"In the new town {HOSTILE}", id="w3")], branch="other")
    page.goto("/c/compared/diff")
    page.get_by_label("Left").fill("main")
    page.get_by_label("Right").fill("other")
    page.get_by_role("button", name="Compare").click()

    expect(page.locator("del")).to_have_text("old")
    expect(page.locator("ins")).to_have_text("new")
    check_page("diff")
    assert page.title() != "1"


def test_verifying_tells_how_far_it_is(page: Page, check_page: Callable[[str], None]) -> None:
    """The whole ledger is verified, and the page says what was found."""
    page.goto("/proof")
    page.get_by_role("button", name="Verify all").click()

    expect(page.locator("output")).to_contain_text("Sound.")
    check_page("proof")
