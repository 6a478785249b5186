"""A walk over all pages: at four widths, in both themes, with the widest of the common fonts, and without scripts."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.support.browser_world import Demo
from tests.support.explorer_agents import STATE, THREAD, fill_agents

from chatledger.infra.entrypoints.explorer.trace import LETTER

PAGES = {
    "chats": "/",
    "chat": "/c/riga?m=riga-6",
    "chat-past": "/c/riga?at=7",
    "search": "/search?q=train",
    "search-nothing": "/search?q=zzzz",
    "compare": "/c/riga/diff?left=main&right=inland",
    "agents": "/agents",
    "thread": f"/agents/{THREAD}",
    "state": f"/states/{STATE}",
    "sessions": "/sessions",
    "log": "/log",
    "proof": "/proof",
    "absent": "/c/nowhere",
}


@pytest.fixture(scope="module", autouse=True)
def agents(demo: Demo) -> None:
    """A thread that waits, and a state of a graph."""
    fill_agents(demo.ledger)


HAS_FONT = """font => {
  const context = document.createElement("canvas").getContext("2d");
  const widths = [`20px "${font}", monospace`, "20px monospace"].map((tried) => {
    context.font = tried;
    return context.measureText("Wide illness").width;
  });
  return widths[0] !== widths[1];
}"""
OVERLAPPING = """() => {
  // Each line of text as far as it is seen: inside what scrolls or is cut off, and not covered.
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const line of range.getClientRects()) {
      let { left, right, top, bottom } = line;
      for (let parent = node.parentElement; parent; parent = parent.parentElement) {
        if (getComputedStyle(parent).overflow === "visible") continue;
        const edge = parent.getBoundingClientRect();
        [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
        [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
      }
      const shown = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
      const isSeen = right - left > 2 && bottom - top > 2 && node.parentElement.contains(shown);
      if (isSeen) lines.push({ node, left, right, top, bottom, height: line.height });
    }
  }
  const overlapping = [];
  // Lines of text stand closer than their boxes are high: letters touch where they share a third of the height.
  for (const [at, a] of lines.entries()) for (const b of lines.slice(at + 1)) {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    const isOver = a.node !== b.node && width > 1 && height > Math.min(a.height, b.height) / 3;
    if (isOver) overlapping.push([a, b].map(({ node }) => node.data.trim().slice(0, 40)).join(" | "));
  }
  return overlapping;
}"""


@pytest.mark.parametrize("font", ["DejaVu Sans", "Inter"])
@pytest.mark.parametrize("width", [390, 820, 1440, 2560])
def test_every_page_at_every_width(page: Page, width: int, font: str) -> None:
    """Nothing lies beyond the edge or on something else, the header is one line of 48 px."""
    page.set_viewport_size({"width": width, "height": 844})
    page.goto("/")
    if not page.evaluate(HAS_FONT, font):
        pytest.skip(f"{font} is not installed: Debian has it in fonts-{font.partition(' ')[0].lower()}")
    wrong: list[str] = []
    for name, path in PAGES.items():
        page.goto(path)
        page.evaluate("font => document.documentElement.style.setProperty('--font', `'${font}'`)", font)
        page.wait_for_timeout(50)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{name}: lies beyond the edge")
        head = page.locator(".head").evaluate("head => [head.offsetHeight, head.scrollWidth - head.clientWidth]")
        if head != [48, 0]:
            wrong.append(f"{name}: the header is {head}")
        wrong += [f"{name}: on each other: {texts}" for texts in page.evaluate(OVERLAPPING)]
        if page.locator("main .grave").count():
            wrong.append(f"{name}: a deletion stands in the flow of the page")

    assert wrong == []


def test_labels_of_an_axis_have_the_room_that_is_reckoned_for_them(page: Page) -> None:
    """Which labels are shown is decided without a browser: no length of time is wider than that reckons."""
    page.goto(PAGES["thread"])
    if not page.evaluate(HAS_FONT, "DejaVu Sans"):
        pytest.skip("DejaVu Sans is not installed: Debian has it in fonts-dejavu")
    texts = ["0", "2 ms", "22 ms", "888 ms", "8.88 s", "58.8 s", "8 min", "58 min", "8 h", "28 h", "8 days", "888 days"]
    widths = page.locator(".trace-head text").first.evaluate(
        """(label, texts) => {
          label.style.fontFamily = "'DejaVu Sans'";
          return texts.map((text) => { label.textContent = text; return label.getComputedTextLength(); });
        }""",
        texts,
    )
    assert [text for text, width in zip(texts, widths, strict=True) if width > len(text) * LETTER] == []


@pytest.mark.parametrize("width", [390, 820, 1440, 2560])
def test_every_page_is_accessible(page: Page, width: int, check_page: Callable[[str], None]) -> None:
    """Axe finds nothing in either theme, what one presses is at least 24 px, and the page asks no other host."""
    page.set_viewport_size({"width": width, "height": 844})
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    for name, path in PAGES.items():
        page.goto(path)
        expect(page.locator("main")).to_be_visible()
        check_page(f"walk-{name}-{width}")

    assert len(hosts) == 1


def test_all_is_read_without_scripts(browser: Browser, demo: Demo) -> None:
    """Each page, and from the list of chats each message of a chat by links alone."""
    context = browser.new_context(base_url=demo.url, java_script_enabled=False, viewport={"width": 1200, "height": 800})
    page = context.new_page()
    for path in PAGES.values():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto("/")
    page.get_by_role("link", name="A weekend in Riga").first.click()
    ids = {message.id for message in demo.ledger.get_messages("riga")}
    shown = page.locator("article").evaluate_all("all => all.map((message) => message.dataset.message)")
    assert ids == set(shown)
    context.close()
