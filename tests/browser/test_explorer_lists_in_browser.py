"""Lists in a browser: how times are told, and the rows of chats."""

import re
from collections.abc import Callable, Generator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from tests.support.browser_world import Demo
from tests.support.explorer_world import demo_ledger
from tests.support.http_world import serving

from chatledger import assistant, user
from chatledger.server import create_app

TOLD = """([now, distances]) => {
    const times = distances.map((distance) => {
        const time = document.createElement("time");
        time.dataset.relative = "";
        time.dateTime = new Date(now - distance).toISOString();
        document.querySelector("main").append(time);
        return time;
    });
    return new Promise((tell) => requestAnimationFrame(() => tell(times.map((time) => [time.textContent, time.title]))));
}"""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_772_500_000_000
"""3 March 2026, 01:06:40 UTC."""


@pytest.fixture
def riga(browser: Browser, demo: Demo) -> Generator[BrowserContext]:
    """A browser whose clock stands still, in Riga, two hours before UTC."""
    context = browser.new_context(base_url=demo.url, timezone_id="Europe/Riga", viewport={"width": 1440, "height": 900})
    context.clock.install(time=NOW_MS / 1000)
    yield context
    context.close()


def test_times_are_told_by_how_long_ago_they_were(riga: BrowserContext) -> None:
    """As `now`, `38 min`, `5 h`, a day, a day of another year; exactly in the title, by the reader's clock with its zone."""
    page = riga.new_page()
    page.goto("/proof")
    told = page.evaluate(TOLD, [NOW_MS, [0, 38 * MINUTE_MS, 5 * HOUR_MS, 20 * DAY_MS, 400 * DAY_MS]])

    assert [text for text, _ in told] == ["now", "38 min", "5 h", "11 Feb", "27 Jan 2025"]
    assert told[1][1] in {"3 Mar 2026, 02:28:40 EET", "3 Mar 2026, 02:28:40 GMT+2"}  # by its version


def test_times_are_told_anew_once_a_minute(riga: BrowserContext) -> None:
    """What was told as now is a minute ago a minute later."""
    page = riga.new_page()
    page.goto("/proof")
    page.evaluate(TOLD, [NOW_MS, [0]])
    page.clock.fast_forward(3 * MINUTE_MS)

    expect(page.locator("main time")).to_have_text("3 min")


def test_the_moment_is_told_by_the_clock_of_the_reader(riga: BrowserContext, demo: Demo) -> None:
    """The pill of the header has the time of the event that the address names."""
    event = next(iter(demo.ledger.history(after=2, up_to=3)))
    page: Page = riga.new_page()
    page.goto("/?at=3")
    pill = page.locator(".as-of time")

    words = page.evaluate("(ms) => new Date(ms).toLocaleTimeString('en-GB')", event.occurred_at)
    expect(pill).to_contain_text(words)
    expect(page.locator(".as-of")).to_contain_text("read-only")


def test_chats_are_rows(browser: Browser) -> None:
    """At least 24 are seen at 1440 x 900, each 30 px high with one link that covers it, the last message, and how long ago."""
    with demo_ledger() as ledger, serving(create_app(ledger)) as url:
        blocking = ledger.blocking()
        for number in range(130):
            blocking.create_chat(f"many-{number}", "ada", title=f"Chat {number}")
            blocking.append(f"many-{number}", [user("Is it there?"), assistant(f"Answer {number}")])
        blocking.create_branch("many-7", "other", None, activate=True)
        blocking.append("many-7", [user("Something else")])
        page = browser.new_page(base_url=url, viewport={"width": 1440, "height": 900})
        page.goto("/")
        rows = page.locator("tbody tr")
        seen = page.evaluate(
            """() => [...document.querySelectorAll("tbody tr")].filter((row) => {
                const { top, bottom, left, height } = row.getBoundingClientRect();
                const at = document.elementFromPoint(left + 400, (top + bottom) / 2);
                return height === 30 && top >= 0 && bottom <= innerHeight && row.contains(at);
            }).length"""
        )

        assert seen >= 24
        other, simple = (page.locator(f'tr[data-chat="many-{number}"]') for number in (7, 129))
        expect(other.locator(".last")).to_have_text("Something else")
        expect(simple.locator(".last")).to_have_text("Answer 129")
        expect(simple.locator(".time time")).to_have_text("now")
        expect(simple.locator(".time time")).to_have_attribute("title", re.compile(r"\d{2}:\d{2}:\d{2} \S+$"))
        expect(other.locator(".number").nth(1)).to_have_text("2")
        expect(simple.locator(".number").nth(1)).to_be_empty()
        expect(rows).to_have_count(100)
        page.keyboard.press("End")
        expect(rows).to_have_count(blocking.count_chats())
        head = page.locator("thead th").first.bounding_box()
        assert head is not None
        assert (head["height"], head["y"]) == (28, page.locator("#results").bounding_box()["y"])  # type: ignore[index]

        page.keyboard.press("End")
        box = rows.nth(120).bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] - 10, box["y"] + 15)  # the whole row is the link
        expect(page).to_have_url(re.compile(r"/c/"))
        page.goto("about:blank")
        page.close()


def test_lists_are_sorted_by_their_heads(page: Page, demo: Demo) -> None:
    """By when they changed or were made, either way round; the head that sorts says so."""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/")
    sorted_head = page.locator("th[aria-sort]")
    for head, order in (("Created", "created"), ("Changed", "updated")):
        for direction in ("descending", "ascending"):
            page.get_by_role("columnheader", name=head).get_by_role("link").click()
            expect(sorted_head).to_have_text(re.compile(head))
            expect(sorted_head).to_have_attribute("aria-sort", direction)
            listed = demo.ledger.list_chats(order=order, ascending=direction == "ascending")  # type: ignore[arg-type]
            shown = page.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.chat)")
            assert shown == [chat.id for chat in listed][: len(shown)]


def test_one_goes_through_chats_by_keys(page: Page) -> None:
    """`j`, `k`, arrows, `Home` and `End` choose a row, `Enter` opens it, `o` leads to its owner's, a click with Ctrl opens a tab."""
    page.goto("/")
    rows = page.locator("tbody tr")
    last = rows.count() - 1
    for key, chosen in [("j", 0), ("ArrowDown", 1), ("j", 2), ("k", 1), ("ArrowUp", 0), ("End", last), ("Home", 0)]:
        page.keyboard.press(key)
        expect(rows.nth(chosen).locator("[data-row]")).to_be_focused()
    owner = rows.first.locator("[data-owner]").inner_text()
    page.keyboard.press("o")
    expect(page).to_have_url(re.compile(f"owner={owner}$"))
    title = rows.first.locator("[data-row]").inner_text()
    with page.context.expect_page() as opened:
        rows.first.locator("[data-row]").click(modifiers=["ControlOrMeta"])
    opened.value.close()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def test_chats_that_are_written_say_so(page: Page, demo: Demo) -> None:
    """While an answer grows, without a reload; not after it."""
    page.goto("/")
    mark = page.locator('tr[data-chat="riga"] .chip.live')
    expect(mark).to_be_hidden()
    answer = demo.ledger.live("riga")
    answer.write("Once")
    expect(mark).to_be_visible()
    answer.discard()

    expect(mark).to_be_hidden()


def test_what_was_read_stays_when_chats_change(browser: Browser) -> None:
    """Rows of later pages are not lost when a chat changes: it goes to the top, and one that is deleted goes."""
    with demo_ledger() as ledger, serving(create_app(ledger)) as url:
        blocking = ledger.blocking()
        for number in range(130):
            blocking.create_chat(f"many-{number}", "ada", title=f"Chat {number}")
        page = browser.new_page(base_url=url, viewport={"width": 1440, "height": 900})
        with page.expect_response("**/api/v1/feed**"):
            page.goto("/")
        rows = page.locator("tbody tr")
        page.keyboard.press("End")
        expect(rows).to_have_count(blocking.count_chats())
        blocking.append("many-3", [user("Up")])
        expect(rows.first).to_contain_text("Up")
        expect(rows).to_have_count(blocking.count_chats())
        blocking.delete_chat("many-1")
        expect(page.locator('tr[data-chat="many-1"]')).to_have_count(0)

        expect(rows).to_have_count(blocking.count_chats())
        page.goto("about:blank")
        page.close()


def test_chats_on_a_phone(page: Page, check_page: Callable[[str], None]) -> None:
    """Two lines of 52 px in all, the second is the last message; nothing lies beyond the edge, and axe finds nothing."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/")
    row = page.locator("tbody tr").first
    name, last = row.locator(".name").bounding_box(), row.locator(".last").bounding_box()
    box = row.bounding_box()

    assert name is not None
    assert last is not None
    assert box is not None
    assert box["height"] == 52
    assert name["y"] + name["height"] <= last["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_page("chats-phone")


def test_the_log_is_filtered(page: Page, demo: Demo) -> None:
    """Menus and words combine, as one types; rows that come while one looks are filtered too, and lead to where it was."""
    with demo.ledger.context(actor="gardener"):
        demo.ledger.create_chat("beds", "ada", title="Beds")
        demo.ledger.append("beds", [user("leeks and onions"), assistant("in March")])
    page.goto("/log")
    page.get_by_text("Actor", exact=True).first.click()
    page.get_by_role("link", name="gardener").click()
    page.get_by_text("Time", exact=True).first.click()
    page.get_by_role("link", name="Last 24 h").click()
    page.get_by_text("Type", exact=True).first.click()
    page.get_by_role("link", name="message_appended").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    page.keyboard.press("/")
    page.keyboard.type("onio")
    expect(page).to_have_url(re.compile("q=onio.*lately=24h|lately=24h.*q=onio"))
    page.wait_for_load_state()  # keys that come before the scripts are lost
    with demo.ledger.context(actor="gardener"):
        demo.ledger.append("beds", [user("carrots")])
        demo.ledger.append("beds", [user("more onions")])
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("more onions")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("Beds")
    expect(page).to_have_url(re.compile(r"/c/beds\?at=\d+$"))
    demo.ledger.delete_chat("beds")


def test_keys_wait_for_the_rows_that_were_asked_for(page: Page, demo: Demo) -> None:
    """Who types, goes down and presses Enter is led to the first row that fits, however late it comes."""
    demo.ledger.create_chat("late-row", "ada", title="Persimmons")
    page.goto("/")
    expect(page.locator("[data-action=palette]")).to_be_visible()
    answers: list[Route] = []
    page.route("**/?*q=persim*", lambda route: answers.append(route))  # noqa: PLW0108 - Playwright marks the function
    page.keyboard.press("/")
    page.keyboard.type("persim")
    page.keyboard.press("ArrowDown")
    expect(page.locator("tbody.waiting")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    answers[-1].continue_()

    expect(page.get_by_role("heading", level=1)).to_have_text("Persimmons")
    demo.ledger.delete_chat("late-row")


def test_a_lost_connection_is_told(browser: Browser, demo: Demo) -> None:
    """The header says as of when the page is and when it is tried again, and no more when it is there again."""
    context = browser.new_context(base_url=demo.url)
    page = context.new_page()
    with page.expect_response("**/api/v1/feed**"):
        page.goto("/")
    page.route("**/api/v1/feed**", lambda route: route.abort())
    page.reload()
    lost = page.locator(".chip.lost")
    expect(lost).to_have_text(re.compile(r"^as of \d\d:\d\d:\d\d, again in \d+ s$"))
    page.unroute_all()

    expect(lost).to_have_count(0)
    context.close()


def test_places_are_shown_for_rows_that_are_late(page: Page) -> None:
    """Nothing at once; after 150 ms places of the height of rows, and then the rows."""
    page.goto("/")
    held: list[Route] = []
    page.route("**/?q=**", lambda route: held.append(route))  # noqa: PLW0108 - Playwright takes no builtin
    page.keyboard.press("/")
    page.keyboard.type("riga")
    expect(page.locator("tbody.waiting")).to_be_visible()
    height = page.locator("tbody tr").first.bounding_box()
    assert height is not None
    assert height["height"] == 30
    held[-1].continue_()

    expect(page.locator("tbody.waiting")).to_have_count(0)
    expect(page.locator("tbody tr", has_text="A weekend in Riga")).to_be_visible()


def test_sessions_of_coding_agents(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """By keys and menus: from the agents to what was kept in one folder, its command copied, and into the chat at what was found."""
    page.goto("/sessions")
    check_page("sessions-empty")
    for number in range(120):
        agent = ("claude-code", "codex")[number % 2]
        told = {"agent": agent, "session": f"s{number}", "cwd": f"/src/trip{number % 4}", "git_branch": "main"}
        demo.ledger.create_chat(f"{agent}/s{number}", "ada", title=f"Part {number}", metadata=told)
    demo.ledger.append("codex/s1", [user("Where is quenepa grown?"), assistant("In Ponce.", id="ponce")])
    page.goto("/agents")
    page.get_by_role("link", name="Coding agents").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(100)
    check_page("sessions")
    rows.last.scroll_into_view_if_needed()
    expect(rows).to_have_count(120)
    page.get_by_text("Folder", exact=True).first.click()
    page.get_by_role("link", name="/src/trip1").click()
    expect(rows).to_have_count(30)
    page.get_by_text("Resume in", exact=True).click()
    page.get_by_role("link", name="gemini-cli").click()
    expect(rows.first.locator("code")).to_contain_text("chatledger resume codex/s")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the command that resumes Part 1", exact=True).click()
    expect(page.locator("#live")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "chatledger resume codex/s1 --in gemini-cli"
    page.keyboard.press("/")
    page.keyboard.type("ponce")
    expect(rows).to_have_count(1)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_page("sessions-narrow")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.locator("article.chosen")).to_contain_text("In Ponce.")
    for chat in demo.ledger.list_chats(metadata={"git_branch": "main"}):
        demo.ledger.delete_chat(chat.id)
