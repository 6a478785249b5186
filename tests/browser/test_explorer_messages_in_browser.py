"""Messages in a browser: what was said, calls of tools, edits, and what can be done with the one under the pointer."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.support.browser_world import Demo

from chatledger import NewMessage, assistant, user
from chatledger.importers import ImportedBranch, ImportedChat, ImportedMessage

START_MS = 1_772_474_400_000
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NASTY = [
    "2*3*4",
    "__init__.py",
    "C:\\*.txt",
    "# not a heading?",
    "> no quote",
    "- no\n- list",
    "1. no\n2. list",
    "`no code`",
    "```\nno fence\n```",
    "if x:\n    return 1",
    "\tone\n\t\ttwo",
    "   leading",
    "trailing   ",
    "\n\nbegins with lines",
    "ends with lines\n\n",
    "a  b   c",
    "line\r\nends",
    "<b>no tag</b>",
    "<script>document.title=1</script>",
    "&amp; &lt;",
    "[no](link)",
    "![no](image)",
    "https://example.com/a_b_c",
    "| no | table |\n|---|---|",
    "***",
    "---",
    "~~no~~",
    "שלום, עולם",
    "مرحبا __init__ 2*3*4",
    "👩‍👩‍👧‍👦 é",
    "\n".join(f"line {number}" for number in range(10_000)),
]


@pytest.fixture(scope="module")
def told(demo: Demo) -> str:
    """A chat with a call, a failed one, a result alone, an image, code, a long text and an edit."""
    ledger = demo.ledger
    ledger.create_chat("m-told", "ada", title="Told")
    call: list[dict[str, Any]] = [
        {"type": "text", "text": "I look.\n\n```python\ndef f(x):\n    return x\n```"},
        {"type": "tool-trains", "toolCallId": "c1", "state": "output-available", "input": {"to": "Sigulda", "n": 3}, "output": "3 trains\nmore"},
        {"type": "tool-trains", "toolCallId": "c2", "state": "output-error", "input": {"to": "Nowhere"}, "errorText": "no such town"},
        {"type": "file", "mediaType": "image/png", "filename": "map.png", "url": PIXEL},
    ]  # fmt: skip
    ledger.append("m-told", [user("\n".join(f"line {number}" for number in range(100)), id="m1")])
    ledger.append(
        "m-told",
        [
            NewMessage("assistant", {"role": "assistant", "parts": call}, "ui", id="m2"),
            user("Take the sea route home", id="m3"),
        ],
    )
    ledger.add_messages("m-told", [NewMessage("user", "Take the land route home", id="m4", parent_id="m2")])
    ledger.fork("m-told", "m4")
    ledger.append("m-told", [assistant("By land, then.", id="m5")])
    return "/c/m-told"


@pytest.fixture
def shown(page: Page, told: str) -> Page:
    """The page of the chat, with its graph drawn."""
    page.goto(told)
    expect(page.locator('cl-graph [role="treeitem"]').first).to_be_attached()
    return page


def height(part: Locator) -> float:
    box = part.bounding_box()
    assert box is not None
    return box["height"]


@pytest.mark.parametrize("role", ["user", "tool"])
def test_what_was_said_is_shown_to_the_character(page: Page, demo: Demo, role: str) -> None:
    """What users and tools said, whatever it looks like."""
    demo.ledger.create_chat("m-nasty", "ada")
    demo.ledger.append("m-nasty", [NewMessage(role, text) for text in NASTY])
    page.goto("/c/m-nasty")
    expect(page.locator("article")).to_have_count(len(NASTY))
    texts = page.locator("#path .said").evaluate_all("all => all.map((text) => text.textContent)")

    assert texts == NASTY
    demo.ledger.delete_chat("m-nasty")


def test_answers_are_shown_raw_or_with_their_indentation(page: Page, demo: Demo) -> None:
    """Raw they are there to the character, also after a reload; rendered, pasted lines begin with their blanks."""
    demo.ledger.create_chat("m-answers", "ada")
    demo.ledger.append("m-answers", [assistant(text) for text in NASTY])
    pasted = "  def f(x):\n    if x:\n        return 1"
    demo.ledger.append("m-answers", [assistant(f"{pasted}\n\nand **so** on", id="m-pasted")])
    page.goto("/c/m-answers")
    expect(page.locator("#m-m-pasted p").first).to_have_js_property("innerText", pasted)
    expect(page.locator("#m-m-pasted strong")).to_have_text("so")
    page.keyboard.press("r")
    expect(page.locator("#path .said")).to_have_count(len(NASTY) + 1)
    page.reload()
    texts = page.locator("#path .said").evaluate_all("all => all.map((text) => text.textContent)")

    assert texts[:-1] == NASTY
    demo.ledger.delete_chat("m-answers")


def test_long_texts_are_cut_until_asked_for(shown: Page) -> None:
    """Forty lines are seen of a hundred; all are in the page."""
    text = shown.locator("#m-m1 .prose")
    assert height(text) <= 40 * 22
    shown.locator("#m-m1").get_by_role("button", name="Show all 100 lines").click()
    expect(shown.get_by_role("button", name="Show all")).to_have_count(0)

    assert height(text) == 100 * 22


def test_a_call_is_one_line(shown: Page) -> None:
    """With name, arguments and the result's first line; one that failed is open."""
    done, failed = shown.locator("#m-m2 .tool > summary").all()
    expect(done).to_have_text(re.compile(r"done\s+trains\s+to=.?Sigulda.? n=3 → 3 trains"))
    assert height(done) == 28
    expect(failed).to_contain_text("failed")
    expect(shown.locator("#m-m2 .tool").nth(1)).to_have_attribute("open", "")
    expect(shown.get_by_text("no such town").last).to_be_visible()
    done.click()
    expect(shown.locator("#m-m2 .tool").first.locator(".command > .label")).to_have_text(
        [re.compile("Arguments"), re.compile("Result")]
    )


def test_a_result_is_in_the_line_of_its_call(page: Page, demo: Demo) -> None:
    """Both are one element, with how long it took; a result whose call is not there stands alone."""
    call = {"id": "c1", "type": "function", "function": {"name": "trains", "arguments": '{"to": "Sigulda"}'}}
    said: list[tuple[str, dict[str, Any], int]] = [
        ("tool", {"role": "tool", "tool_call_id": "gone", "content": "alone"}, 0),
        ("assistant", {"role": "assistant", "content": None, "tool_calls": [call]}, 1000),
        ("tool", {"role": "tool", "tool_call_id": "c1", "content": "3 trains\nmore"}, 1450),
    ]
    messages = [
        ImportedMessage(
            id=f"m-c{at}",
            parent_id=f"m-c{at - 1}" if at else None,
            name=name,
            data=data,
            created_at=START_MS + ms,
            form="openai",
        )
        for at, (name, data, ms) in enumerate(said)
    ]
    branch = ImportedBranch(name="main", head_message_id="m-c2", created_at=START_MS, is_active=True)
    demo.ledger.import_chat(
        ImportedChat(
            id="m-calls", user_id="ada", title=None, metadata=None, messages=tuple(messages), branches=(branch,)
        )
    )
    page.goto("/c/m-calls")
    line = page.locator(".tool > summary")
    expect(line).to_have_count(2)
    expect(line.first).to_contain_text("alone")
    expect(line.last).to_have_text(re.compile(r"done\s+trains\s+to=.Sigulda. → 3 trains\s+450 ms"))
    assert [28, 28] == [height(one) for one in line.all()]
    expect(page.locator("#m-m-c2")).to_have_count(1)
    demo.ledger.delete_chat("m-calls")


def test_code_and_images(shown: Page) -> None:
    """Code has its language and can be copied; an image opens in full."""
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"])
    head = shown.locator("#m-m2 .prose .command > .label")
    expect(head).to_contain_text("python")
    head.get_by_role("button", name="Copy").click()
    expect(shown.locator("#live")).to_have_text("Copied")
    assert shown.evaluate("navigator.clipboard.readText()") == "def f(x):\n    return x\n"
    shown.get_by_role("img", name="map.png").click()
    expect(shown.get_by_role("dialog", name="map.png").get_by_role("img")).to_be_visible()
    shown.keyboard.press("Escape")
    expect(shown.get_by_role("dialog")).to_have_count(0)


def test_changes_of_an_edit(shown: Page) -> None:
    """What was taken out and put in, word by word, in the message itself; without what was taken out it is the message."""
    shown.locator("#m-m4 .changes").click()
    edited = shown.locator("#m-m4 .edited")
    expect(edited.locator("del")).to_have_text("sea")
    expect(edited.locator("ins")).to_have_text("land")
    text = edited.evaluate("(part) => { part.querySelectorAll('del').forEach((gone) => gone.remove()); return part.textContent.trim(); }")  # fmt: skip
    assert " ".join(text.split()) == "Take the land route home"
    shown.locator("#m-m4 .changes").click()
    expect(shown.locator("#m-m4 .body").first).to_be_visible()


def test_what_can_be_done_stands_at_the_message(shown: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """Under the pointer: text and link are copied, and forms open in the inspector; keys do the same."""
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.locator("#m-m5 .body").hover()
    hand = shown.get_by_role("toolbar", name="This message")
    hand.get_by_role("button", name="Copy", exact=True).click()
    expect(shown.locator("#live")).to_have_text("Copied")
    assert shown.evaluate("navigator.clipboard.readText()") == "By land, then."
    hand.get_by_role("button", name="Copy the link").click()
    shown.wait_for_function("async () => (await navigator.clipboard.readText()).includes('m=m5')")
    check_page("chat-hand")
    hand.get_by_role("button", name="Checkpoint").click()
    expect(shown.locator("#chosen")).to_have_attribute("data-of", "m5")
    shown.get_by_label("Name", exact=True).fill("by land")
    shown.keyboard.press("Enter")
    expect(shown.locator("#m-m5 .flag")).to_contain_text("by land")
    shown.locator("#m-m1").click()
    shown.keyboard.press("f")
    expect(shown.get_by_label("Name (or one is given)")).to_be_focused()
    checkpoint = demo.ledger.get_checkpoint("m-told", "by land")
    assert checkpoint is not None
    assert checkpoint.message_id == "m5"


def test_parts_of_the_inspector(shown: Page) -> None:
    """One at a time: the message, its versions, what is stored, the forks; what one chose stays while one moves on."""
    shown.locator("#m-m4 time").click()
    expect(shown.locator("#chosen")).to_be_visible()
    shown.get_by_role("button", name="Versions 2").click()
    expect(shown.locator("[data-panel=versions] li")).to_have_count(2)
    expect(shown.locator("#chosen")).to_be_hidden()
    shown.get_by_role("button", name="Raw", exact=True).last.click()
    expect(shown.locator("[data-panel=raw]")).to_contain_text("Take the land route home")
    shown.locator("#m-m5 time").click()
    expect(shown.locator("[data-panel=raw]")).to_contain_text("By land, then.")
    shown.get_by_role("button", name="Forks 1").click()
    expect(shown.locator(".forks li")).to_have_count(1)


def test_a_fork_of_the_past_begins_in_the_present(shown: Page, demo: Demo) -> None:
    """Where one looks at the past nothing else is offered, and it is said why."""
    shown.locator("#m-m1 time").click()
    shown.keyboard.press("t")
    shown.keyboard.press("ArrowLeft")
    expect(shown.locator(".as-of")).to_be_visible()
    expect(shown.locator("#chosen").get_by_role("button", name="Edit")).to_be_disabled()
    expect(shown.locator("#chosen")).to_contain_text("look at it now")
    shown.keyboard.press("e")
    expect(shown.locator("#live")).to_contain_text("This is the past")
    shown.keyboard.press("f")
    shown.get_by_label("Name (or one is given)").fill("from the past")
    shown.keyboard.press("Enter")
    expect(shown.locator("#read")).to_have_text("from the past")
    expect(shown.locator(".as-of")).to_have_count(0)
    branch = demo.ledger.get_branch("m-told", "from the past")
    assert branch is not None
    assert branch.head_message_id == "m1"
    demo.ledger.set_active_branch("m-told", "main-v2")
    demo.ledger.delete_branch("m-told", "from the past")


def test_two_paths_beside_each_other(shown: Page, check_page: Callable[[str], None]) -> None:
    """Where there is room; where there is none the same leads to the comparison."""
    shown.set_viewport_size({"width": 2560, "height": 1200})
    shown.keyboard.press("b")
    beside = shown.get_by_role("region", name="Another path")
    expect(beside.locator("article")).to_have_count(1)
    expect(beside).to_contain_text("Take the sea route home")
    expect(beside.locator(".pane-head")).to_contain_text("after 2 messages in common")
    check_page("chat-beside")
    shown.set_viewport_size({"width": 1440, "height": 900})
    expect(beside).to_be_hidden()
    shown.keyboard.press("b")
    expect(shown).to_have_url(re.compile(r"/diff\?left=main-v2&right=main"))


def test_panes_are_as_wide_as_one_wants(shown: Page) -> None:
    """By the pointer and by keys, within limits; the next page has the same."""
    shown.set_viewport_size({"width": 1600, "height": 900})
    edge = shown.get_by_role("separator", name="Width of the graph")
    box = edge.bounding_box()
    assert box is not None
    shown.mouse.move(box["x"] + 4, 400)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 104, 400, steps=4)
    shown.mouse.up()
    expect(edge).to_have_attribute("aria-valuenow", "496")
    edge.focus()
    shown.keyboard.press("ArrowLeft")
    expect(edge).to_have_attribute("aria-valuenow", "480")
    shown.reload()
    assert shown.locator("#graph-pane").evaluate("(pane) => pane.offsetWidth") == 480
    for _ in range(15):
        edge.press("ArrowRight")
    expect(edge).to_have_attribute("aria-valuenow", "640")


def test_a_branch_is_merged(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """By keys: what will be is read, messages are ticked, the commands follow, and the active branch goes on with copies."""
    demo.ledger.create_chat("m-merged", "ada", title="Where to")
    demo.ledger.append("m-merged", [user("Where to in May?", id="mm1"), assistant("Riga.", id="mm2")])
    demo.ledger.create_branch("m-merged", "coast", "mm2")
    demo.ledger.append("m-merged", [user("And the coast?", id="mm3"), assistant("Jurmala.", id="mm4")], branch="coast")
    page.goto("/c/m-merged?branch=coast")
    action = page.get_by_role("region", name="This chat").locator("details", has_text="Merge this branch")
    action.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(action).to_contain_text("After “Riga.”, which both have, 'coast' has 2 messages that 'main' does not have")
    check_page("chat-merge")
    action.get_by_label("Copy chosen messages", exact=True).focus()
    page.keyboard.press("Space")
    action.get_by_label("assistant: Jurmala.").check()
    expect(action.locator('[data-command="python"]')).to_contain_text("how='pick', pick=['mm4']")
    action.get_by_role("button", name="Merge this branch").press("Enter")
    expect(page.locator("#read")).to_have_text("main")
    expect(page.locator("article")).to_have_count(3)
    expect(page.locator("article").last).to_contain_text("Jurmala.")
    copied = demo.ledger.get_messages("m-merged", branch="main")[-1]

    assert (copied.copied_from, copied.merged_from) == ("mm4", ("mm4",))
