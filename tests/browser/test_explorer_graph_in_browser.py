"""<cl-graph> in a browser: rows of a chat on a canvas, keys, the map, and the tree beside it."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.support.browser_world import Demo
from tests.support.graph_page import put_graph, state_of, told

from chatledger import Ledger, assistant, user

CHAT = "graph"
SIDE = 12


@pytest.fixture(scope="module")
def chat(demo: Demo) -> Iterator[Ledger]:
    """A chat of 600 messages with three forks, a checkpoint, and what is stale and hidden."""
    ledger = demo.ledger
    ledger.create_chat(CHAT, "local", title="A graph")
    made = ledger.append(CHAT, [(assistant if at % 2 else user)(f"message {at}") for at in range(200)], branch="main")
    for at in (50, 120):
        side = ledger.fork(CHAT, made[at].id, activate=False).name
        ledger.append(CHAT, [user(f"{side}, {number}") for number in range(SIDE)], branch=side)
    ledger.append(CHAT, [user(f"later {at}") for at in range(376)], branch="main")
    ledger.set_checkpoint(CHAT, "before the edit", made[50].id)
    ledger.annotate(CHAT, made[52].id, hidden=True)
    ledger.annotate(CHAT, made[53].id, stale=True)
    yield ledger
    ledger.delete_chat(CHAT)


def test_the_graph_is_shown_and_read(page: Page, chat: Ledger, check_page: Callable[[str], None]) -> None:
    """It opens at the head; the tree says what the canvas shows; axe finds nothing in either theme."""
    put_graph(page, CHAT)
    tree = page.get_by_role("tree")

    expect(tree.get_by_role("treeitem").last).to_have_text("user: later 375; on the read path; head of main")
    shown = chat.get_rows(CHAT, first=50, limit=4).rows
    page.locator("cl-graph").evaluate("(graph, id) => graph.show(id)", shown[0].id)
    expect(tree.get_by_text("checkpoint before the edit")).to_have_attribute("aria-selected", "true")
    expect(tree.get_by_text("assistant: message 53; on the read path; stale")).to_have_attribute("aria-posinset", "54")
    expect(tree.get_by_text("user: hidden; on the read path")).to_have_count(1)
    check_page("graph")


def test_keys_move_the_selection(page: Page, chat: Ledger) -> None:
    """Arrows, pages, ends, forks and parents by keys; Enter opens. Each choice is told, and the focus follows it."""
    put_graph(page, CHAT)
    expect(page.get_by_role("treeitem").last).to_be_attached()
    page.get_by_role("treeitem").last.focus()
    for key, row in {
        "Home": 0,
        "ArrowDown": 1,
        "]": 50,
        "End": 599,
        "[": 120,
        "ArrowUp": 119,
        "ArrowLeft": 118,
    }.items():
        page.keyboard.press(key)
        expect(page.locator("[role=treeitem]:focus")).to_have_attribute("aria-posinset", str(row + 1))
    page.keyboard.press("Enter")

    opened = chat.get_rows(CHAT, first=118, limit=1).rows[0]
    assert {"type": "cl-open", "id": opened.id, "row": 118} == told(page)[-1]
    assert opened.id == page.locator("cl-graph").get_attribute("selected")


def test_only_the_path_is_shown(page: Page, chat: Ledger) -> None:
    """Rows are depths then; the chosen message stays chosen."""
    side = chat.list_branch_points(CHAT).points[0].children[1]
    put_graph(page, CHAT)
    graph = page.locator("cl-graph")
    graph.evaluate("(graph, name) => graph.setAttribute('along', name)", side.branches[0])
    graph.evaluate("graph => graph.setAttribute('only', 'path')")

    item = page.get_by_role("treeitem").last
    expect(item).to_have_attribute("aria-setsize", str(51 + SIDE))
    expect(item).to_have_text(f"user: {side.branches[0]}, {SIDE - 1}; on the read path; head of {side.branches[0]}")
    graph.evaluate("graph => graph.removeAttribute('only')")
    expect(page.get_by_role("treeitem").last).to_have_attribute("aria-setsize", "600")


def test_clicks_hits_and_the_map(page: Page, chat: Ledger) -> None:
    """A click chooses, the map goes anywhere, hits are found in rows, and what is appended comes into sight."""
    put_graph(page, CHAT)
    graph = page.locator("cl-graph")
    canvas = page.locator(".cl-graph-rows")
    canvas.click(position={"x": 200, "y": 100})
    assert "cl-select" == told(page)[-1]["type"]
    page.locator(".cl-graph-map").click(position={"x": 20, "y": 2})
    expect(page.get_by_role("treeitem").first).to_have_text("user: message 0; on the read path")
    graph.evaluate(
        "(graph, ids) => graph.setAttribute('hits', JSON.stringify(ids))",
        [chat.get_rows(CHAT, first=7, limit=1).rows[0].id],
    )
    graph.evaluate("async graph => { while (!graph.hits.has(7)) await new Promise(requestAnimationFrame); }")
    graph.evaluate("graph => graph.scroll.to(graph.scroll.most)")
    chat.append(CHAT, [user("just now")], branch="main")
    graph.evaluate("graph => graph.refresh()")

    expect(page.get_by_text("user: just now; on the read path; head of main")).to_be_attached()
    assert state_of(page)["total"] == chat.get_rows(CHAT, limit=1).total


def test_the_past_is_drawn(page: Page, chat: Ledger) -> None:
    """With `at` the graph is that of then."""
    chat.create_chat("graph-then", "local")
    chat.append("graph-then", [user("one")])
    position = chat.position
    chat.append("graph-then", [user("two")])
    put_graph(page, "graph-then", at=str(position))

    expect(page.get_by_role("treeitem")).to_have_text(["user: one; on the read path; head of main"])


def test_what_is_read_is_in_one_strong_colour(page: Page, chat: Ledger) -> None:
    """Whichever branch is read has lane 0 and the accent; hovering lights up another line; what is cut is listed."""
    chat.create_chat("graph-wide", "local")
    main = chat.append("graph-wide", [user(f"main {number}", id=f"wide-{number}") for number in range(300)])
    for number in range(60):
        chat.create_branch("graph-wide", f"side-{number}", main[number].id, activate=False)
    for number in range(60):
        chat.append("graph-wide", [user(f"answer {number}")], branch=f"side-{number}")
    put_graph(page, "graph-wide", along="main")
    graph = page.locator("cl-graph")

    def pixel(x: int, row: int) -> str:
        """The colour of the canvas in a row, in hexadecimal."""
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        colour: str = graph.evaluate(
            """(graph, [x, row]) => {
              const ratio = devicePixelRatio;
              const y = row * graph.rowPx + graph.rowPx / 2 - graph.scroll.top;
              const data = graph.painter.context.getImageData(x * ratio, y * ratio, 1, 1).data;
              return [...data.slice(0, 3)].map((part) => part.toString(16).padStart(2, "0")).join("");
            }""",
            [x, row],
        )
        return colour

    aside = chat.get_rows("graph-wide", first=330, limit=1).rows[0]
    graph.evaluate("(graph, id) => graph.show(id)", aside.id)
    expect(page.locator("[role=treeitem][aria-selected=true]")).to_contain_text("answer 30")
    x = graph.evaluate("(graph, lane) => graph.painter.x(lane)", aside.lane)

    def is_lit() -> bool:
        """Whether the thin line above the message is orange; it is drawn with soft edges."""
        colour = pixel(x, 329)
        return int(colour[:2], 16) - int(colour[4:], 16) > 80

    assert not is_lit()
    y = graph.evaluate("graph => 330.5 * graph.rowPx - graph.scroll.top")
    page.locator(".cl-graph-rows").hover(position={"x": 200, "y": y})
    expect(page.locator(".cl-graph-tip")).to_contain_text("side-30 · user")
    assert is_lit()
    graph.evaluate("graph => graph.show('wide-250')")
    expect(page.locator("[role=treeitem][aria-selected=true]")).to_contain_text("on the read path")
    assert pixel(14, 252) == "3b4cca"
    assert graph.evaluate("graph => graph.painter.gutter") <= 144
    chip = graph.evaluate("graph => graph.painter.bundles[0]")
    page.locator(".cl-graph-rows").click(position={"x": chip["x"] + 4, "y": chip["y"]})
    expect(page.locator(".bundled li")).to_have_count(60)
    page.locator(".bundled button", has_text="side-7 ").click()
    assert told(page)[-1]["type"] == "cl-select"
    graph.evaluate("graph => graph.setAttribute('along', 'side-7')")
    expect(page.get_by_role("treeitem", name="answer 7", exact=False).first).to_contain_text("on the read path")
    row = chat.get_rows("graph-wide", along="side-7").head
    assert row is not None
    assert pixel(14, row.row) == "3b4cca"
    chat.delete_chat("graph-wide")


COLUMN = """(graph, [lane, row]) => {
  // How much of the pixels across a line between two rows has its colour: its width. It is drawn with soft edges.
  const x = graph.painter.x(lane) - 5;
  const y = (row + 1) * graph.rowPx - graph.scroll.top;
  const { data } = graph.painter.context.getImageData(x * devicePixelRatio, y * devicePixelRatio, 10, 1);
  const pixels = [...Array(10).keys()].map((at) => [...data.slice(4 * at, 4 * at + 3)]);
  const strength = ([r, g, b]) => 3 * 255 - r - g - b;
  const most = pixels.reduce((one, other) => (strength(other) > strength(one) ? other : one));
  const full = strength(graph.painter.colours[lane ? "thread" : "accent"].match(/\\d+/g).map(Number));
  return { width: pixels.reduce((sum, pixel) => sum + strength(pixel), 0) / full, colour: most };
}"""


def test_the_line_under_the_pointer_is_named_and_lit(page: Page, chat: Ledger) -> None:
    """All of it and no other, also where its branch ends further down; the read path is wide, the others are thin."""
    chat.create_chat("graph-lines", "local")
    main = chat.append("graph-lines", [user(str(at)) for at in range(6)])
    for name, at in (("upper", 1), ("lower", 3)):
        chat.create_branch("graph-lines", name, main[at].id, activate=False)
    for _ in range(3):
        for name in ("upper", "lower"):
            chat.append("graph-lines", [user(name)], branch=name)
    put_graph(page, "graph-lines", along="main")
    graph = page.locator("cl-graph")
    lanes = {row.row: row.lane for row in chat.get_rows("graph-lines", along="main").rows}

    def between(row: int, lane: int) -> tuple[float, bool]:
        """The width of what is drawn in a lane below a row, and whether it is orange."""
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        drawn = graph.evaluate(COLUMN, [lane, row])
        return drawn["width"], drawn["colour"][0] - drawn["colour"][2] > 80

    assert [2.75, 1.25] == [pytest.approx(between(*at)[0], abs=0.1) for at in ((2, 0), (9, lanes[9]))]
    assert not any(between(row, lanes[row])[1] for row in range(10))
    for row, name in ((6, "upper"), (9, "lower")):
        page.locator(".cl-graph-rows").hover(
            position={"x": 200, "y": graph.evaluate("(g, row) => (row + 0.5) * g.rowPx", row)}
        )
        expect(page.locator(".cl-graph-tip")).to_contain_text(f"{name} · user")
        lit = {at for at in range(6, 10) if between(at, lanes[at])[1]}
        assert lit == ({6, 8} if name == "upper" else {7, 9})
        assert not any(between(at, 0)[1] for at in range(5))
    page.locator(".cl-graph-rows").hover(position={"x": 200, "y": 5})
    expect(page.locator(".cl-graph-tip")).to_contain_text("main · user")
    assert not any(between(at, lanes[at])[1] for at in range(10))
    chat.delete_chat("graph-lines")


DASHES = """(graph, [lane, row]) => {
  // Whether something, and whether nothing, is drawn along a lane from a row to the one after the next.
  const [x, y] = [graph.painter.x(lane), (row + 0.8) * graph.rowPx - graph.scroll.top];
  const { data } = graph.painter.context.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, graph.rowPx * 1.4);
  const light = [...Array(data.length / 4).keys()].map((at) => data[4 * at] + data[4 * at + 1] + data[4 * at + 2]);
  return [Math.min(...light) < Math.max(...light) - 60, light.filter((one) => one === Math.max(...light)).length > 4];
}"""


def test_a_merge_is_marked_and_drawn(page: Page, chat: Ledger) -> None:
    """The tree says it, a dashed line leads from the lane of what was merged to it, and the page of the message names that."""
    chat.create_chat("graph-merge", "local")
    (start,) = chat.append("graph-merge", user("start"))
    chat.create_branch("graph-merge", "idea", start.id)
    chat.append("graph-merge", user("an idea", id="merged-idea"), branch="idea")
    chat.append("graph-merge", [user("and"), user("so"), user("on")])
    (merge,) = chat.merge("graph-merge", "idea", summary="It was good.").messages
    put_graph(page, "graph-merge")

    expect(page.get_by_role("tree").get_by_text("; head of main; a merge")).to_have_count(1)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator("cl-graph").evaluate(DASHES, [1, 1]) == [True, True]
    page.goto(f"/c/graph-merge?m={merge.id}")
    expect(page.get_by_text("Merges", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="merged-idea")).to_be_visible()
    chat.delete_chat("graph-merge")
