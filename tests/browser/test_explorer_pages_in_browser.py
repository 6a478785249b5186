"""Search, log, diff and proof in a browser: what moves there, and axe."""

import re
from collections.abc import Callable

from playwright.sync_api import Page, Route, expect
from tests.support.browser_world import Demo
from tests.support.explorer_agents import THREAD, fill_agents

from chatledger import assistant, user
from chatledger.items import ItemStore
from chatledger.replays import Exchange, ReplayAnswer

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


def test_a_hit_is_shown_in_its_place(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """As one moves with the keys; a message of an agent too, and Enter opens what is shown."""
    demo.ledger.create_chat("place", "ada", title="Leeks")
    demo.ledger.append("place", [user("What goes with okra?"), assistant("Okra goes with rice."), user("Thanks")])
    content = {"role": "assistant", "content": "An okra is no leek, okra okra okra."}
    ItemStore(demo.ledger.for_user("ada")).put(("notes",), "okra", content)
    page.goto("/search?q=okra")
    shown = page.get_by_role("region", name="In its place")
    expect(shown.locator(".chosen")).to_contain_text("An okra is no leek")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(shown.locator("article")).to_have_count(3)
    expect(shown.locator(".chosen")).to_contain_text("rice")
    assert page.evaluate("[...CSS.highlights.get('hit')].map(String)") == ["Okra"]
    check_page("search-place")
    page.keyboard.press("k")
    expect(shown.locator("article")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Leeks")


def test_hits_are_narrowed_down(page: Page) -> None:
    """By links with their counts; what is chosen stands above the hits, and goes with a press."""
    page.goto("/search?q=train")
    every = page.locator(".hit-list li").count()
    page.get_by_role("navigation", name="Narrow down").get_by_role("link", name="user 1").click()
    expect(page.locator(".hit-list li")).to_have_count(1)
    page.get_by_title("Without this filter").click()

    expect(page.locator(".hit-list li")).to_have_count(every)


def test_log_grows(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """What is written is seen without a reload, first; not while the log is paused."""
    page.goto("/log")
    demo.ledger.create_chat("grows", "ada", title=HOSTILE)
    first = page.locator("tbody tr").first
    expect(first.locator(".where")).to_have_text(HOSTILE)
    page.keyboard.press("p")
    demo.ledger.append("grows", [user("leeks")])
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    expect(page.locator("#following")).to_be_hidden()
    expect(first).to_contain_text("chat_created")
    page.keyboard.press("p")

    expect(first).to_contain_text("leeks")
    expect(page.locator("#following")).to_be_visible()
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


def test_two_branches_are_chosen(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """By keys, from the page of a chat; turn by turn, with what each took in a table; and another chat by its title."""
    demo.ledger.create_chat("retold", "ada", title="Trains")
    demo.ledger.append("retold", [user("When is a train?"), assistant("The train leaves at 8:04.")])
    demo.ledger.append("retold", [user("And back?"), assistant("At 17:30.")])

    def runner(turn: Exchange) -> ReplayAnswer:
        words = "The train leaves at nine." if turn.number == 1 else "I do not know."
        return ReplayAnswer(assistant(words), {"usage": {"input_tokens": 300, "output_tokens": 5}})

    demo.ledger.replay("retold", runner, name="small")
    page.goto("/c/retold")
    page.keyboard.press("c")
    check_page("diff-choices")
    page.get_by_role("link", name="small", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=3)).to_have_text(["Where they part", "Turn 1"])
    expect(page.get_by_role("row", name="Tokens used")).to_have_text(re.compile("Tokens used\\s*\u2013\\s*610"))
    expect(page.locator("del")).to_have_text("8:04.")
    expect(page.locator("ins")).to_have_text("nine.")
    expect(page.locator(".diff-row").last).to_have_text(re.compile(r"At 17:30\..*I do not know\.", re.DOTALL))
    check_page("diff-turns")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_page("diff-turns-narrow")
    page.goto("/c/retold/diff?left=main")
    page.get_by_role("link", name="A weekend in Riga").click()

    expect(page.get_by_label("Right")).to_have_value("chat:riga")
    expect(page.locator(".diff-side h2")).to_have_text(["main", "A weekend in Riga"])


def test_anything_is_compared_with_anything(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """A branch and a moment, two chats, two threads each show a result; swapped and inline, and inline on a phone."""
    fill_agents(demo.ledger)
    page.goto("/c/riga/diff")
    page.get_by_label("Left").fill("main")
    page.get_by_label("Right").fill("@7")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".diff-row").first).to_be_visible()
    page.goto("/c/riga/diff?left=main&right=inland")
    expect(page.locator(".missing").first).to_be_visible()
    page.get_by_role("link", name="Swap").click()
    expect(page.get_by_label("Left")).to_have_value("inland")
    page.get_by_role("link", name="Inline").click()
    expect(page.locator(".diff-row ins").first).to_be_visible()
    expect(page.locator(".diff-row del").first).to_be_visible()
    check_page("diff-inline")
    page.locator("details.common > summary").click()
    expect(page.locator(".common .said")).to_have_count(2)
    page.goto("/compare?left=chat:riga&right=chat:sensor")
    expect(page.locator(".diff-side h2")).to_have_text(["A weekend in Riga", "4294967295 degrees on the balcony"])
    page.set_viewport_size({"width": 390, "height": 844})
    cells = [cell.bounding_box() for cell in page.locator(".diff-cell:not(.missing)").all()]
    assert all(cell is not None and cell["width"] > 380 for cell in cells)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(f"/compare?left=thread:{THREAD}&right=thread:{THREAD}")

    expect(page.get_by_role("tree")).to_be_visible()
    expect(page.get_by_text("The two states are equal.")).to_be_visible()


def test_verifying_tells_how_far_it_is(page: Page, check_page: Callable[[str], None]) -> None:
    """The whole ledger is verified, and the page says what was found."""
    page.goto("/proof")
    page.get_by_role("button", name="Verify all").click()

    expect(page.locator("form[data-verify] output")).to_contain_text("Sound.")
    card = page.get_by_role("region", name="Verdict")
    expect(card.get_by_role("heading")).to_have_text("Sound")
    expect(card).to_contain_text(re.compile(r"\d+ events, \d+ chats · now"))
    check_page("proof")
    page.reload()
    expect(card.get_by_role("heading")).to_have_text("Sound")
