"""The page of a chat in a browser: graph, path and time slider go together, and what is written meanwhile is seen."""

import re
from collections.abc import Callable
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.support.browser_world import Demo
from tests.support.ledger_world import index_held

from chatledger import assistant, user
from chatledger.importers import ImportedBranch, ImportedChat, ImportedMessage


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
    expect(shown.locator("#path .chosen")).to_contain_text("Vilnius")
    expect(shown).to_have_url(re.compile("m=b4"))
    shown.reload()

    expect(shown.locator("#path .chosen")).to_contain_text("Vilnius")


def test_found_and_chosen_messages(page: Page, check_page: Callable[[str], None]) -> None:
    """What was found is marked and leads to the message; axe finds nothing with every fold open."""
    page.goto("/c/riga?q=train&m=riga-6")
    expect(page.locator('cl-graph [role="treeitem"]').first).to_be_attached()
    expect(page.locator("#panel-find mark")).to_have_count(5)
    expect(page.locator("#path .chosen")).to_contain_text("Sigulda")
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")

    check_page("chat-found")


def test_versions_are_paged_through(shown: Page) -> None:
    """One goes through the answers to one question by a click or a key, and back; the fork says what the others are."""
    expect(shown.locator(".versions")).to_contain_text("1 of 3")
    shown.locator(".fork > summary").click()
    expect(shown.locator(".ways li")).to_have_count(3)
    y = shown.locator(".fork").bounding_box()
    shown.get_by_role("link", name="Next version").click()
    expect(shown.locator("article .body").last).to_contain_text("Tallinn")
    expect(shown).to_have_url(re.compile("m=b3"))
    expect(shown.locator("cl-graph [role=treeitem][aria-selected=true]")).to_contain_text("Tallinn; on the read path")
    now = shown.locator(".fork").bounding_box()
    assert y is not None
    assert now is not None
    assert abs(y["y"] - now["y"]) <= 2
    shown.keyboard.press(".")
    expect(shown.locator("article .body").last).to_contain_text("Vilnius")
    shown.go_back()
    expect(shown.locator("article .body").last).to_contain_text("Tallinn")
    shown.keyboard.press("[")

    expect(shown.locator("#path .chosen")).to_contain_text("Where to?")


def test_slider_shows_the_past_and_says_so(shown: Page, check_page: Callable[[str], None]) -> None:
    """Step by step the page is as it was; it is read-only, marks what the step did, and comes back to now."""
    slider = shown.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", "now, step 8 of 8")
    shown.keyboard.press("t")
    shown.keyboard.press("Home")
    shown.keyboard.press("ArrowRight")
    expect(shown.locator(".as-of")).to_contain_text("read-only")
    expect(shown.locator("article")).to_have_count(1)
    expect(shown.locator("article .chip")).to_contain_text("this step")
    expect(shown).to_have_url(re.compile("at="))
    check_page("chat-then")
    shown.keyboard.press("n")
    expect(shown.locator(".as-of")).to_have_count(0)

    expect(shown.locator("article").last).to_contain_text("Riga")


def test_a_chat_opens_in_two_rounds(page: Page, trip: str) -> None:
    """The page names all its modules, and the row at which the graph opens: nothing is asked for that waited for another answer."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(trip)
    expect(page.locator('cl-graph [role="treeitem"]').last).to_be_attached()

    named = set(page.evaluate("[...document.querySelectorAll('script, link')].map(each => each.src || each.href)"))
    assert [] == [url for url in asked if url.endswith(".js") and url not in named]
    assert 1 == sum("/rows?" in url for url in asked)


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
        with shown.expect_request(lambda request: "rows?rows=1" in request.url):
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


@pytest.fixture(scope="module")
def long(demo: Demo) -> str:
    """A chat of 4,760 messages and 61 branches: 60 early ones have another way on that was written last."""
    made = demo.ledger
    made.create_chat("b-long", "ada", title="A long one")
    messages = [(assistant if at % 2 else user)(f"message {at}", id=f"l-{at}") for at in range(LAST + 1)]
    made.append("b-long", messages)
    for at in range(60):
        made.create_branch("b-long", f"side-{at}", f"l-{at}", activate=False)
    for at in range(60):
        made.append("b-long", [user(f"aside {at}")], branch=f"side-{at}")
    return "/c/b-long"


LAST = 4759
SEEN = """() => ["h1", '[name="branch"]', '[name="q"]', "cl-time"].filter((selector) => {
  const box = document.querySelector(selector).getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return !(box.width > 0 && top && (top.closest(selector) || top.querySelector(selector)));
}).concat(document.scrollingElement.scrollTop ? ["the page has scrolled"] : [])"""


def test_frame_stays_while_a_long_path_is_read(page: Page, long: str) -> None:
    """Title, branch, find and time are always seen; a few hundred messages are in the document, however far one goes."""
    page.goto(long)
    count = page.locator("article").count
    expect(page.locator("article").last).to_contain_text(f"message {LAST}")
    assert page.evaluate(SEEN) == []
    page.keyboard.press("Home")
    expect(page.locator("#m-l-0")).to_be_in_viewport()
    assert page.evaluate(SEEN) == []
    page.locator("#scroller").hover()
    far = re.compile(r"message ([34],\d\d\d) of 4,760")
    for _ in range(600):  # a busy machine scrolls less at once
        page.mouse.wheel(0, 4_500)
        page.wait_for_timeout(20)
        if far.match(page.locator("#place").text_content() or ""):
            break
    expect(page.locator("#place")).to_have_text(far)
    assert page.evaluate(SEEN) == []
    assert count() <= 250
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    # Chromium goes on with the wheel's movement, and what a script sets meanwhile is lost.
    page.evaluate(
        "async () => { for (let top = -1; top !== scroller.scrollTop; await new Promise((go) => setTimeout(go, 300))) top = scroller.scrollTop }"
    )
    page.evaluate("scroller.scrollTop = (scroller.scrollHeight - scroller.clientHeight) / 2")
    expect(page.locator(f"#m-l-{LAST // 2}")).to_be_attached()
    page.keyboard.press("End")
    expect(page.locator(f"#m-l-{LAST}")).to_be_in_viewport()
    assert page.evaluate(SEEN) == []


def test_bar_leads_where_it_is_dropped_while_an_answer_is_on_its_way(page: Page, long: str) -> None:
    """What a slow server sends for the place before changes the heights; the bar was dropped at half the path all the same."""
    page.goto(long)
    expect(page.locator("article").last).to_contain_text(f"message {LAST}")
    waiting: list[Route] = []
    page.route("**/path?*", lambda route: waiting.append(route) if not waiting else route.continue_())
    page.evaluate("scroller.scrollTop = scroller.querySelector('.block').offsetTop + 300")
    while not waiting:
        page.wait_for_timeout(10)
    page.evaluate("scroller.scrollTop = (scroller.scrollHeight - scroller.clientHeight) / 2")
    page.wait_for_timeout(20)
    # Its messages are eight times as high as those before.
    answer = waiting[0].fetch()
    waiting[0].fulfill(
        response=answer, body=answer.text().replace("</article>", "<p>" + "<br>" * 40 + "</p></article>")
    )
    expect(page.locator(f"#m-l-{LAST // 2}")).to_be_in_viewport()


def test_any_place_of_a_hundred_thousand_messages_is_reached(page: Page, demo: Demo) -> None:
    """The first by a key, the last by another, and half by the bar, where a pixel of it stands for several of a message."""
    count = 100_000
    messages = tuple(
        ImportedMessage(
            id=f"h-{at}", parent_id=f"h-{at - 1}" if at else None, name="user", data=f"message {at}", created_at=at
        )
        for at in range(count)
    )
    branch = ImportedBranch(name="main", head_message_id=messages[-1].id, created_at=0, is_active=True)
    demo.ledger.import_chat(
        ImportedChat(id="b-huge", user_id="ada", title=None, metadata=None, messages=messages, branches=(branch,))
    )
    page.goto("/c/b-huge")
    expect(page.locator("#place")).to_have_text(re.compile(r"message 99,9\d\d of 100,000"))
    page.keyboard.press("Home")
    expect(page.locator("#m-h-0")).to_be_in_viewport()
    page.keyboard.press("End")
    expect(page.locator(f"#m-h-{count - 1}")).to_be_in_viewport()
    page.evaluate("scroller.scrollTop = (scroller.scrollHeight - scroller.clientHeight) / 2")
    place = page.locator("#place")
    expect(place).to_have_text(re.compile(r"message (49|50),\d\d\d of 100,000"))
    shown = int((place.text_content() or "").split()[1].replace(",", ""))
    assert abs(shown - count / 2) <= 500
    expect(page.locator(f"#m-h-{shown - 1}")).to_be_in_viewport()
    assert page.locator("article").count() <= 250
    demo.ledger.delete_chat("b-huge")


def test_short_chats_begin_at_the_top(page: Page, demo: Demo) -> None:
    """Eight messages, one, none: all is seen; where nothing was said yet, how something is."""
    for count in (8, 1, 0):
        demo.ledger.create_chat("b-short", "ada", title="A short one")
        demo.ledger.append("b-short", [user(f"message {at}") for at in range(count)]) if count else None
        page.goto("/c/b-short")
        expect(page.locator("article")).to_have_count(count)
        expect(page.get_by_role("slider")).to_be_attached()
        assert page.evaluate(SEEN) == []
        assert page.locator("#scroller").evaluate("scroller => scroller.scrollTop") == 0
        if not count:
            expect(page.locator("#scroller .snippet-code")).to_contain_text('ledger.append("b-short"')
        demo.ledger.delete_chat("b-short")


def test_what_is_read_stays_in_the_past(page: Page, long: str) -> None:
    """The message at the top edge stays at its height when one goes back in time, and again when one comes back."""
    page.goto(long)
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^now"))
    page.keyboard.press("Home")
    expect(page.locator("#m-l-20")).to_be_attached()
    page.evaluate("document.querySelector('#m-l-20').scrollIntoView()")
    before = page.locator("#m-l-20").bounding_box()
    page.keyboard.press("t")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".as-of")).to_be_in_viewport()
    for part in (".head", "cl-time"):
        expect(page.locator(part)).to_be_in_viewport()
        expect(page.locator(part)).to_have_css("background-color", "rgb(255, 243, 204)")
    past = page.locator("#m-l-20").bounding_box()
    page.keyboard.press("n")
    expect(page.locator(".as-of")).to_have_count(0)
    after = page.locator("#m-l-20").bounding_box()

    assert before is not None
    assert past is not None
    assert after is not None
    assert abs(before["y"] - past["y"]) <= 4
    assert abs(before["y"] - after["y"]) <= 4


def test_nothing_jumps_while_one_scrolls_up(page: Page, long: str) -> None:
    """Blocks come above, and what is read stays where it is."""
    page.goto(long)
    expect(page.locator(f"#m-l-{LAST}")).to_be_in_viewport()
    jumps = page.evaluate(
        """async () => {
          const jumps = [];
          for (let step = 0; step < 400; step++) {
            const top = scroller.getBoundingClientRect().top;
            const before = [...document.querySelectorAll("article")].find((one) => one.getBoundingClientRect().bottom > top + 60);
            const [y, from] = [before.getBoundingClientRect().y, scroller.scrollTop];
            scroller.scrollTop -= 60;
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            if (!before.isConnected) continue;
            const moved = before.getBoundingClientRect().y - y;
            if (from > 60 && Math.abs(moved - 60) > 2) jumps.push(moved);
          }
          return jumps;
        }"""
    )

    assert jumps == []


@pytest.mark.parametrize(("part", "told"), [("#scroller", "/path?"), (".cl-graph-scroll", "/rows?first=")])
def test_nothing_is_asked_for_twice(page: Page, long: str, part: str, told: str) -> None:
    """Whoever goes up through a chat gets each part of the path and of the graph once, and in order."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if told in request.url else None)
    page.goto(long)
    expect(page.locator('cl-graph [role="treeitem"]').first).to_be_attached()
    page.evaluate(
        """async (part) => {
          for (let frame = 0; frame < 120; frame++) {
            document.querySelector(part).scrollTop -= 120;
            await new Promise(requestAnimationFrame);
          }
        }""",
        part,
    )
    page.wait_for_timeout(300)
    firsts = [int(re.findall(r"first=(\d+)", url)[0]) for url in asked]

    assert len(firsts) > 2
    assert len(set(firsts)) == len(firsts)
    assert firsts[1:] == sorted(firsts[1:], reverse=True)


def test_keys_act_after_the_slider_was_used(page: Page, long: str) -> None:
    """The slider takes arrows and no other key; the past is yellow, and the message that is read stays where it is."""
    page.goto(long)
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^now"))
    page.evaluate("document.querySelector('#path > :last-child > :last-child').scrollIntoView()")
    page.keyboard.press("t")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".as-of")).to_contain_text("read-only")
    expect(page.locator("body.past")).to_have_count(1)
    for key, focused in {"m": "#scroller", "i": "#inspector", "t": "cl-time input", "/": "#find"}.items():
        page.keyboard.press(key)
        assert page.evaluate("selector => document.activeElement?.matches(selector)", focused), key
        page.evaluate("document.querySelector('cl-time input').focus()")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    expect(page.locator("#path .chosen")).to_have_count(1)
    page.keyboard.press("n")
    expect(page.locator(".as-of")).to_have_count(0)


def test_texts_are_shown_as_they_were_said(page: Page, demo: Demo) -> None:
    """To the character; answers too where one asks for it, and the next page does so as well."""
    demo.ledger.create_chat("b-said", "ada")
    said = "if x:\n    return __init__  # 2*3*4"
    demo.ledger.append("b-said", [user(said, id="s1"), assistant("**Riga** *now*", id="s2")])
    page.goto("/c/b-said")
    assert page.locator("#m-s1 .said").evaluate("one => one.textContent") == said
    expect(page.locator("#m-s2 strong")).to_have_text("Riga")
    page.keyboard.press("r")
    expect(page.locator("#m-s2 .said")).to_have_text("**Riga** *now*")
    page.reload()
    expect(page.locator("#m-s2 .said")).to_have_text("**Riga** *now*")
    page.get_by_role("button", name="Rendered").click()
    expect(page.locator("#m-s2 strong")).to_have_text("Riga")
    demo.ledger.delete_chat("b-said")


@pytest.mark.parametrize("width", [390, 820, 1440, 2560])
def test_no_width_is_too_narrow(page: Page, long: str, width: int, check_page: Callable[[str], None]) -> None:
    """Nothing lies beyond the edge, the header is one line, axe finds nothing."""
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{long}?m=l-4750")
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^now"))

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".head").evaluate("one => [one.offsetHeight, one.scrollWidth - one.clientWidth]") == [48, 0]
    check_page(f"chat-{width}")


def test_a_long_chat_is_read_without_scripts(browser: Browser, demo: Demo, long: str) -> None:
    """By links to what is earlier and later."""
    context = browser.new_context(base_url=demo.url, java_script_enabled=False)
    page = context.new_page()
    page.goto(long)
    page.get_by_role("link", name="Earlier messages").click()
    expect(page.locator(f"#m-l-{LAST - 99}")).to_be_attached()
    page.get_by_role("link", name="Later messages").click()
    expect(page.locator(f"#m-l-{LAST}")).to_be_attached()
    context.close()
