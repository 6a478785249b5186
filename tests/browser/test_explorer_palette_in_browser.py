"""The palette and the keys in a browser: where they lead, what they offer, and that they act wherever the focus is."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect
from tests.support.browser_world import Demo

from chatledger import assistant, user


def type_into_palette(page: Page, text: str) -> None:
    """Open the palette, and type when it is there."""
    page.keyboard.press("ControlOrMeta+k")
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type(text)


def test_a_few_letters_lead_to_a_chat(page: Page) -> None:
    """`Ctrl K`, "riga", Enter opens the chat, also where the focus is in a field, and however fast one types."""
    page.goto("/log")
    page.keyboard.press("/")
    type_into_palette(page, "riga")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("A weekend in Riga")
    expect(page).to_have_url(re.compile(r"/c/riga$"))


def test_what_is_typed_before_the_palette_is_there_is_for_the_palette(page: Page) -> None:
    """Its script is fetched when it is opened first; the page does not take the letters for its keys meanwhile."""
    waiting: list[Route] = []
    page.route(re.compile(r"/palette\.js$"), lambda route: waiting.append(route))  # noqa: PLW0108 - Playwright takes no builtin
    page.goto("/")
    expect(page.get_by_role("button", name="Palette")).to_be_visible()
    page.get_by_role("link", name="Log", exact=True).focus()
    page.keyboard.press("ControlOrMeta+k")
    page.keyboard.type("2026-")
    page.keyboard.press("Enter")
    page.wait_for_timeout(100)
    waiting[0].continue_()
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("03-05")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(r"at=2026-03-0[45]T"))


def test_the_palette_deletes(page: Page, demo: Demo) -> None:
    """`>del` offers Delete and opens its dialog; Escape there changes nothing."""
    demo.ledger.create_chat("doomed", "ada", title="Doomed")
    page.goto("/c/doomed")
    type_into_palette(page, ">del")
    expect(page.locator(".palette [role=option]")).to_have_text(["Delete this chat"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Delete this chat")).to_be_visible()
    page.keyboard.press("Escape")

    expect(page.get_by_role("dialog")).to_have_count(0)
    assert demo.ledger.get_chat("doomed") is not None
    demo.ledger.delete_chat("doomed")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("@7", r"at=7$"),
        ("2 h ago", r"at=\d{4}-\d\d-\d\dT"),
        ("last tuesday", r"at=\d{4}-\d\d-\d\dT\d\d%3A59%3A59"),
        ("yesterday", r"at=\d{4}-\d\d-\d\dT\d\d%3A59%3A59"),
        ("2026-03-05", r"at=2026-03-0[45]T"),
        ("5 Mar 2026", r"at=2026-03-0[45]T"),
    ],
)
def test_the_palette_goes_to_a_moment(page: Page, text: str, at: str) -> None:
    """A position, a time ago, a day: the page is as of it."""
    page.goto("/" if text in {"2 h ago", "last tuesday", "yesterday"} else "/c/riga")
    type_into_palette(page, text)
    expect(page.locator(".palette [role=option]").first).to_contain_text("As of")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(at))


def test_groups_of_the_palette(page: Page, demo: Demo, check_page: Callable[[str], None]) -> None:
    """Chats, branches of this chat first, messages, and actions with their keys; Tab leaves one group, Backspace brings all back."""
    demo.ledger.create_chat("inlands", "ada", title="Inland waters")
    demo.ledger.append("inlands", [user("inland?"), assistant("inland")])
    demo.ledger.create_branch("inlands", "inland-too", None)
    page.goto("/c/riga")
    type_into_palette(page, "inland")
    expect(page.get_by_role("group", name="Chats").get_by_role("option")).to_contain_text(["Inland waters"])
    expect(page.get_by_role("group", name="Branches").get_by_role("option")).to_contain_text(
        ["inlandA weekend in Riga", "inland-too"]
    )
    expect(page.get_by_role("group", name="Messages").get_by_role("option").first).to_be_visible()
    check_page("palette")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".palette").get_by_role("option", selected=True)).to_contain_text("A weekend in Riga")
    page.keyboard.press("Tab")
    expect(page.locator(".palette [role=group]")).to_have_count(1)
    for _ in "inland":
        page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    expect(page.get_by_role("group", name="Chats")).to_be_visible()
    page.keyboard.type(">raw")
    expect(page.locator(".palette [role=option]")).to_contain_text(["Raw or renderedr"])
    page.keyboard.press("Enter")

    expect(page.get_by_role("group", name="Chats")).to_have_count(0)
    expect(page.get_by_role("button", name="Raw", exact=True)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("r")
    demo.ledger.delete_chat("inlands")


def test_only_the_last_question_is_answered(page: Page) -> None:
    """What was asked before is let go, and its answer is not waited for."""
    page.goto("/")
    type_into_palette(page, "")
    expect(page.locator(".palette [role=option]").first).to_be_visible()
    held: list[Route] = []
    page.route("**/palette?q=w&**", lambda route: held.append(route))  # noqa: PLW0108 - Playwright takes no builtin
    with page.expect_request("**/palette?q=w&**"):
        page.keyboard.type("w")
    with page.expect_event("requestfailed", lambda request: "q=w&" in request.url):
        page.keyboard.type("eekend")

    expect(page.locator(".palette [role=option]").first).to_have_text("A weekend in Rigaada")
    page.unroute_all(behavior="ignoreErrors")


KEYS = {
    "/": "() => document.activeElement.matches('input[type=search]')",
    "j": "() => document.activeElement.matches('[data-row]')",
    "k": "() => document.activeElement.matches('[data-row]')",
    "ArrowDown": "() => document.activeElement.matches('[data-row]')",
    "Home": "() => document.activeElement === document.querySelector('[data-row]')",
    "End": "() => document.activeElement === [...document.querySelectorAll('[data-row]')].pop()",
    "?": "() => document.querySelector('#keys')?.open",
    "Control+k": "() => document.querySelector('.palette')?.open",
    "t": "() => document.activeElement.matches('cl-time input')",
    "n": "() => !document.querySelector('.as-of')",
    " ": "() => document.querySelector('cl-time [aria-label=Stop]')",
    "F6": "() => document.activeElement.closest('.rail, form, [role=region]')",
}


@pytest.mark.parametrize("key", [key for key in KEYS if key not in {"ArrowDown", "Home", "End"}])
def test_keys_act_while_the_slider_has_the_focus(page: Page, key: str) -> None:
    """After `t` each key of the table still acts; arrows, `Home` and `End` are the slider's."""
    page.goto("/")
    page.keyboard.press("t")
    expect(page.get_by_role("slider")).to_be_focused()
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^now"))
    page.keyboard.press("Home" if key == " " else "ArrowLeft")  # what plays from the last step but one soon ends
    expect(page.locator(".as-of")).to_be_visible()
    expect(page.get_by_role("slider")).to_be_focused()
    page.keyboard.press("Space" if key == " " else key)

    page.wait_for_function(KEYS[key])


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_a_list(page: Page, key: str) -> None:
    """Each key of the table does what it says."""
    page.goto("/")
    expect(page.locator("[data-action=palette]")).to_be_visible()
    if key == " ":
        page.keyboard.press("t")
        expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^now"))
    page.keyboard.press("Space" if key == " " else key)

    page.wait_for_function(KEYS[key])


@pytest.mark.parametrize(
    ("key", "title"), [("1", "Chats"), ("2", "Agents"), ("3", "Search"), ("4", "Log"), ("5", "Proof")]
)
def test_digits_lead_to_the_pages_of_the_rail(page: Page, key: str, title: str) -> None:
    """In the order of the rail."""
    page.goto("/proof" if key != "5" else "/")
    expect(page.locator("[data-action=palette]")).to_be_visible()
    page.keyboard.press(key)

    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def test_the_theme_is_named(page: Page) -> None:
    """The button says which theme it is: the system's, dark, light."""
    page.emulate_media(color_scheme="light")
    page.goto("/")
    for theme in ("system", "dark", "light", "system"):
        button = page.get_by_role("button", name=f"Theme: {theme}")
        expect(button).to_be_visible()
        button.click()

    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


def test_escape_closes_the_topmost(page: Page) -> None:
    """A menu, then the filter or the row that has the focus."""
    page.goto("/")
    page.keyboard.press("j")
    page.get_by_text("Owner", exact=True).first.click()
    expect(page.get_by_label("Owner", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Owner", exact=True)).to_be_hidden()
    page.keyboard.press("j")
    page.keyboard.press("Escape")

    assert page.evaluate("document.activeElement === document.body")


def test_escape_in_a_chat(page: Page) -> None:
    """The inspector over the page, then what was found, then the choice; a form that is written stays."""
    page.set_viewport_size({"width": 1000, "height": 800})
    page.goto("/c/riga?q=train&m=riga-5")
    page.keyboard.press("i")
    expect(page.locator("#side-pane")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#side-pane")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(r"/c/riga\?m=riga-5$"))
    page.keyboard.press("Escape")

    expect(page).to_have_url(re.compile(r"/c/riga$"))


CHAT_KEYS = {
    "j": "() => location.search.includes('m=')",
    "k": "() => location.search.includes('m=')",
    "g": "() => document.activeElement.closest('cl-graph')",
    "m": "() => document.activeElement.closest('#path-pane')",
    "i": "() => document.activeElement.closest('#side-pane')",
    "c": "() => location.pathname.endsWith('/diff')",
    "r": "() => document.querySelector('[data-raw=\"1\"][aria-pressed=true]')",
    "v": "() => document.querySelector('[data-compact=\"1\"][aria-pressed=true]')",
    "/": "() => document.activeElement.id === 'find'",
    "?": "() => document.querySelector('#keys')?.open",
    "Control+k": "() => document.querySelector('.palette')?.open",
    "n": "() => !document.querySelector('.as-of')",
    "Space": "() => document.querySelector('cl-time [aria-label=Stop]')",
}


@pytest.mark.parametrize("key", CHAT_KEYS)
def test_keys_of_a_chat_act_while_the_slider_has_the_focus(page: Page, demo: Demo, key: str) -> None:
    """After `t` each key of the table still acts."""
    demo.ledger.upsert_chat("keyed", "ada")
    if not demo.ledger.get_messages("keyed"):
        for text in ("one", "two", "three"):
            demo.ledger.append("keyed", [user(text)])
    page.goto("/c/keyed")
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", "now, step 4 of 4")
    page.keyboard.press("t")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".as-of")).to_be_visible()
    expect(page.locator("cl-graph [role=treeitem]").first).to_be_attached()  # what `g` goes to comes a moment later
    page.keyboard.press(key)

    page.wait_for_function(CHAT_KEYS[key])


FORK_KEYS = {
    "[": ("?m=k2", "() => location.search.includes('m=k1')"),
    "]": ("?m=k2", "() => location.search.includes('m=k4')"),
    ".": ("?m=k2", "() => location.search.includes('m=k3')"),
    ",": ("?m=k3", "() => location.search.includes('m=k2')"),
    "f": ("?m=k2", "() => document.activeElement.name === 'name' && document.activeElement.closest('#chosen')"),
    "e": ("?m=k2", "() => document.querySelector('.toast')?.textContent.startsWith('This is the past')"),
    "y": ("?m=k2", "async () => (await navigator.clipboard.readText()).includes('m=k2')"),
    "b": ("?m=k2", "() => location.pathname.endsWith('/diff')"),
    "Home": ("", "() => document.querySelector('cl-time input').value === '0'"),
    "End": ("", "() => !location.search.includes('at=')"),
}


@pytest.mark.parametrize("key", FORK_KEYS)
def test_keys_at_a_fork_act_while_the_slider_has_the_focus(page: Page, demo: Demo, key: str) -> None:
    """Forks, versions, forms, the link and the other path; the ends are the slider's then."""
    ledger = demo.ledger
    if ledger.get_chat("forked") is None:
        ledger.create_chat("forked", "ada")
        ledger.append("forked", [user("one", id="k1"), user("two", id="k2")])
        ledger.create_branch("forked", "other", "k1", activate=False)
        ledger.append("forked", [user("another two", id="k3")], branch="other")
        ledger.append("forked", [user("three", id="k4"), user("four", id="k5")], branch="main")
        ledger.create_branch("forked", "last", "k4", activate=False)
        ledger.append("forked", [user("another four", id="k6")], branch="last")
        ledger.append("forked", [user("five")], branch="main")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.set_viewport_size({"width": 1440, "height": 900})
    query, done = FORK_KEYS[key]
    page.goto(f"/c/forked{query}")
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", "now, step 8 of 8")
    expect(page.get_by_role("tree").get_by_role("treeitem")).to_have_count(7)
    page.keyboard.press("t")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".as-of")).to_be_visible()
    expect(page.get_by_role("slider")).to_be_focused()
    page.keyboard.press(key)

    page.wait_for_function(done)


def test_f6_goes_round(page: Page, demo: Demo) -> None:
    """Through the rail, the graph, the path, the inspector and the strip of time, and back; with Shift the other way."""
    demo.ledger.create_chat("round", "ada")
    for text in ("one", "two", "three"):
        demo.ledger.append("round", [user(text)])
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/c/round")
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", "now, step 4 of 4")
    expect(page.get_by_role("tree").get_by_role("treeitem")).to_have_count(3)
    seen: list[str] = []
    for _ in range(6):
        page.keyboard.press("F6")
        seen.append(
            page.evaluate("document.activeElement.closest('.rail, .pane, cl-time')?.getAttribute('aria-label') ?? '?'")
        )
    page.keyboard.press("Shift+F6")

    assert seen[:5] == ["Pages", "Graph", "Path", "Inspector", "Time"]
    assert seen[5] == "Pages"
    assert page.evaluate("document.activeElement.closest('cl-time') !== null")
