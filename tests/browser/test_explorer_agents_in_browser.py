"""Agents in a browser, and what can be done there: forms work with and without scripts, and keep what one writes."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from langgraph.checkpoint.base.id import uuid6
from playwright.sync_api import Browser, Page, expect
from tests.support.browser_world import Demo
from tests.support.chromium import PATIENCE_MS
from tests.support.explorer_agents import STATE, THREAD, begin_again, fill_agents

from chatledger import assistant, user
from chatledger.graph_state import StateStore
from chatledger.langgraph import LedgerSaver


@pytest.fixture(scope="module")
def agents(demo: Demo) -> None:
    """A thread that waits, with runs to be repeated; a state of a graph."""
    fill_agents(demo.ledger)
    begin_again(demo.ledger)


@pytest.fixture
def chat(demo: Demo) -> str:
    """A chat to change."""
    demo.ledger.delete_chat("d-trip")
    demo.ledger.create_chat("d-trip", "ada", title="A trip to change")
    demo.ledger.append("d-trip", [user("Where to?", id="d1"), assistant("Riga", id="d2")])
    return "/c/d-trip"


def test_agents_are_accessible(page: Page, agents: None, check_page: Callable[[str], None]) -> None:
    """The pages of agents, in both themes and at the width of a phone."""
    del agents
    for name, path in (("agents", "/agents"), ("thread", f"/agents/{THREAD}"), ("state", f"/states/{STATE}")):
        page.set_viewport_size({"width": 1200, "height": 800})
        page.goto(path)
        check_page(name)
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


def test_one_looks_through_a_thread(page: Page, agents: None, check_page: Callable[[str], None]) -> None:
    """From the list to a thread, to one of its steps, and to what differs from an earlier one."""
    del agents
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/agents")
    page.get_by_role("link", name=THREAD).click()
    expect(page.get_by_role("region", name="Waits for you")).to_contain_text("go on?")
    page.locator(".trace a[href]").nth(2).click()
    expect(page.locator(".trace a[href]").nth(2)).to_have_attribute("aria-current", "true")
    page.locator("#against").select_option(label="against input")
    expect(page.locator("[role=treeitem].added").first).to_be_visible()

    check_page("thread-compared")


def test_runs_are_approved(page: Page, agents: None, demo: Demo) -> None:
    """The plan says why; when it is approved, the first run may be repeated, and the next one waits for it."""
    del agents
    page.goto(f"/agents/{THREAD}")
    expect(page.locator(".plan .chip").first).to_have_text("awaiting approval")
    page.get_by_text("Approve the regeneration").first.click()
    page.get_by_role("button", name="Approve the regeneration").click()
    expect(page.locator(".plan .chip").first).to_have_text("ready")
    found = demo.ledger.get_regeneration(THREAD, "again")

    assert found is not None
    assert [step.status for step in found.steps] == ["ready", "waiting"]


def test_what_agents_do_is_seen(page: Page, agents: None, demo: Demo) -> None:
    """A thread and a state show what is written to them without a reload, in their lists too; what one writes stays."""
    del agents
    states, saver = StateStore(demo.ledger.for_user("ada")), LedgerSaver(demo.ledger.for_user("ada"))
    page.goto(f"/states/{STATE}")
    states.put(STATE, {"title": "seen"}, node="told")
    expect(page.get_by_role("cell", name="told")).to_be_visible()
    page.goto(f"/agents/{THREAD}")
    rows = page.locator(".trace").first.locator("li")
    count_of_rows = rows.count()
    _put_checkpoint(saver)
    expect(rows).not_to_have_count(count_of_rows)
    demo.ledger.record_run(THREAD, "run-while-seen", thread_id=THREAD, assistant_id="told")
    expect(page.locator("main")).to_contain_text("run-while-seen")
    page.goto("/agents")
    count = page.get_by_role("row", name=THREAD).locator(".number").first
    before = int(count.inner_text())
    page.get_by_label("Filter").fill("ada")
    _put_checkpoint(saver)
    page.locator("h1").click()
    _put_checkpoint(saver)

    expect(count).to_have_text(str(before + 2))
    expect(page.get_by_label("Filter")).to_have_value("ada")


def _put_checkpoint(saver: LedgerSaver) -> None:
    """Go on with the thread, as a graph does after a step."""
    config: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
    found = saver.get_tuple(config)
    assert found is not None
    made = {**found.checkpoint, "id": str(uuid6())}
    saver.put(found.config, cast("Any", made), {"source": "loop", "step": 99, "parents": {}}, {})


def test_doing_in_a_chat(page: Page, chat: str, demo: Demo, check_page: Callable[[str], None]) -> None:
    """What belongs to a message comes with choosing it; what one writes stays while others write; then it is done."""
    page.goto(chat)
    page.locator("article").last.get_by_role("link", name="assistant").click()
    page.locator("#chosen summary", has_text="Edit").click()
    page.locator("#chosen textarea[name=text]").fill("Tallinn")
    expect(page.locator('[data-command="python"]', has_text="Tallinn")).to_be_visible()
    demo.ledger.append("d-trip", [user("Hello from elsewhere")])
    expect(page.locator('cl-graph [role="tree"]')).to_contain_text("Hello from elsewhere")
    check_page("doing")
    expect(page.locator("#chosen textarea[name=text]")).to_have_value("Tallinn")
    page.get_by_role("button", name="Edit").click()
    expect(page.locator("#path .chosen")).to_contain_text("Tallinn")
    expect(page.locator("#path .chosen .versions")).to_contain_text("2 of 2")

    assert len(demo.ledger.versions("d2").ids) == 2


def test_doing_without_scripts(browser: Browser, demo: Demo, chat: str) -> None:
    """Every form works where no script runs; deleting asks."""
    context = browser.new_context(base_url=demo.url, java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{chat}?m=d2")
    page.locator("#chosen summary", has_text="Checkpoint").click()
    page.locator("#chosen form[action='/do/name'] input[name=name]").fill("decided")
    page.get_by_role("button", name="Checkpoint", exact=True).click()
    expect(page.locator(".chosen .flag")).to_contain_text("decided")
    page.locator("summary[aria-label=More]").click()
    page.locator("summary", has_text="Delete this chat").click()
    page.get_by_role("button", name="Delete this chat").click()
    assert demo.ledger.get_chat("d-trip") is not None
    page.get_by_label("Its id").fill("d-trip")
    page.get_by_role("button", name="Delete this chat").click()
    page.wait_for_url(demo.url + "/")
    context.close()

    assert demo.ledger.get_chat("d-trip") is None


def test_deleting_asks_for_the_id(page: Page, chat: str, demo: Demo) -> None:
    """In a dialog, whose button is off until the id is typed; Escape changes nothing."""
    page.goto(chat)
    page.locator("summary[aria-label=More]").click()
    page.locator("summary", has_text="Delete this chat").click()
    dialog = page.get_by_role("dialog", name="Delete this chat")
    button = dialog.get_by_role("button", name="Delete this chat")
    expect(button).to_be_disabled()
    page.keyboard.type("d-tri")
    expect(button).to_be_disabled()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.locator("summary", has_text="Delete this chat").click()
    dialog.get_by_label("Its id").fill("d-trip")
    button.click()
    page.wait_for_url(demo.url + "/")

    assert demo.ledger.get_chat("d-trip") is None
