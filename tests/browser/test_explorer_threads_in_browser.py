"""Threads in a browser, made by LangGraph's own library: how they stand, without a reload; as traces; their states as trees."""

import re
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from langgraph.types import Command
from playwright.sync_api import Browser, Page, expect
from tests.support.browser_world import Demo
from tests.support.chromium import PATIENCE_MS
from tests.support.explorer_world import demo_ledger
from tests.support.http_world import serving
from tests.support.trace_graphs import SLEPT_MS, begin, config_of, fails, report_graph

from chatledger.infra.ledger.threads import Threads
from chatledger.server import create_app


@pytest.fixture(scope="module")
def threads(demo: Demo) -> Generator[Any]:
    """Threads that wait, failed and finished; gives what calls a function in a thread of its own, where no loop runs."""
    with ThreadPoolExecutor(1) as pool:

        def call(function: Callable[..., Any], *given: Any) -> Any:
            return pool.submit(function, *given).result()

        for name, last in (("waits-1", None), ("failed-1", fails), ("done-1", lambda _state: {"sources": ["end"]})):
            call(begin, report_graph(demo.ledger, last) if last else report_graph(demo.ledger), name)
        yield call
        for name in ("waits-1", "failed-1", "done-1", *(f"slept-{attempt}" for attempt in range(4))):
            Threads(demo.ledger).delete(name)


def test_how_threads_stand(page: Page, threads: Any, demo: Demo, check_page: Callable[[str], None]) -> None:
    """
    The status of each is right, also after the question was answered, without a reload and within two seconds; the counts of the
    tabs add up to all, and the rail has the number that waits.
    """
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/agents")
    row = {name: page.get_by_role("row", name=name) for name in ("waits-1", "failed-1", "done-1")}
    expect(row["waits-1"]).to_contain_text("waits for you")
    expect(row["waits-1"]).to_contain_text("Publish this report?")
    expect(row["waits-1"].locator(".node")).to_have_text("review")
    expect(row["failed-1"]).to_contain_text("ValueError: 429, try again")
    expect(row["done-1"].locator(".chip")).to_have_text("finished")
    assert row["done-1"].bounding_box()["height"] == 30  # type: ignore[index]
    waiting = int(page.locator("#waiting").inner_text())  # other tests' threads among them
    check_page("agents")
    tabs = page.get_by_role("navigation", name="How threads stand").get_by_role("link").all_inner_texts()
    every, *others = [int(tab.split()[-1]) for tab in tabs]
    assert every == sum(others)

    loaded = page.evaluate("performance.timeOrigin")
    threads(lambda: report_graph(demo.ledger).invoke(Command(resume="publish"), config_of("waits-1")))
    expect(row["waits-1"].locator(".chip")).to_have_text("finished")
    expect(row["waits-1"]).to_contain_text("The report: publish.")
    expect(page.locator("#waiting")).to_have_text(str(waiting - 1))  # and none is hidden
    assert page.evaluate("performance.timeOrigin") == loaded
    threads(begin, report_graph(demo.ledger), "waits-1", "Once more.")
    expect(page.locator("#waiting")).to_have_text(str(waiting))
    page.get_by_role("link", name=f"Waits {waiting}").click()
    expect(page.locator("tbody tr")).to_have_count(waiting)
    page.goto("/agents/failed-1")
    expect(page.get_by_role("region", name="Failed")).to_contain_text("ValueError: 429, try again")


def test_thread_as_a_trace(page: Page, threads: Any, demo: Demo, check_page: Callable[[str], None]) -> None:
    """
    Three nodes side by side are three rows below one step, whose bars overlap, and which took what they slept; the question and its
    answer are seen without a click.
    """
    page.set_viewport_size({"width": 1440, "height": 900})
    spans: dict[str, tuple[float, float]] = {}
    late_ms = [1000.0]
    for attempt in range(4):  # where the machine is busy, the nodes begin late
        threads(begin, report_graph(demo.ledger, lambda _state: {"sources": ["end"]}), f"slept-{attempt}")
        page.goto(f"/agents/slept-{attempt}")
        expect(page.locator(".trace > li", has_text="3 nodes").locator("a")).to_be_visible()
        tasks = page.locator(".trace > li.task")
        expect(tasks).to_have_count(3)
        late_ms = []
        for task in tasks.all():
            name, took = task.locator("b").inner_text(), task.locator(".took").inner_text()
            late_ms.append(abs(int(took.removesuffix(" ms")) - SLEPT_MS[name]))
            expect(task.locator("rect")).to_be_visible()  # a stylesheet may come late
            bar = task.locator("rect").bounding_box()
            assert bar is not None
            spans[name] = bar["x"], bar["x"] + bar["width"]
        if max(late_ms) <= 30:
            break
    assert max(late_ms) <= 30
    assert max(start for start, _ in spans.values()) < min(end for _, end in spans.values())
    assert spans["papers"][1] > spans["web"][1] > spans["notes"][1]
    assert {row.bounding_box()["height"] for row in page.locator(".trace > li").all()} == {26}  # type: ignore[index]

    page.goto("/agents/waits-1")
    expect(page.get_by_role("region", name="Waits for you")).to_contain_text("Publish this report?")
    for text in ("Publish this report?", 'Command(resume="publish")'):
        expect(page.get_by_text(text).last).to_be_in_viewport()
    expect(page.locator(".trace rect.waits").last).to_be_visible()
    assert "additional_kwargs" not in page.locator("body").inner_text()
    check_page("thread")
    page.get_by_role("link", name="Messages").click()
    expect(page.locator("#state article").last).to_contain_text("The draft is ready.")
    assert "additional_kwargs" not in (page.locator("body").text_content() or "")
    page.goto("/agents/failed-1")
    expect(page.locator(".trace path.cross")).to_have_count(1)


@pytest.mark.parametrize("width", [1440, 390])
def test_a_step_that_is_not_done_is_chosen(page: Page, threads: Any, width: int) -> None:
    """Its own row, with what it asks or failed with, and what its tasks wrote; the step before shows what it wrote itself."""
    del threads
    page.set_viewport_size({"width": width, "height": 900})
    for name, channel in (("waits-1", "__interrupt__"), ("failed-1", "__error__")):
        page.goto(f"/agents/{name}")
        page.locator(".trace a", has=page.locator("b:text-is('review')")).last.click()
        chosen = page.locator(".trace a[aria-current]")
        expect(chosen.locator("b")).to_have_text("review")
        assert chosen.count() == 1
        page.locator("#state-pane").get_by_role("link", name="Writes").click()
        expect(page.locator("#state tbody code")).to_have_text([channel])
        expect(page.locator("#inspector h3").first).to_have_text(re.compile("step [0-9]+, review not done"))
        if width == 390:
            page.get_by_role("button", name="Steps").click()
        page.locator(".trace a:has(b:text-is('write'))").last.click()
        expect(page.locator("#state tbody th")).to_have_text(["write"] * 4)
        expect(page.locator("#state tbody code").first).to_have_text("draft")


def test_a_question_is_answered_where_the_graph_runs(browser: Browser) -> None:
    """By a press, where this server runs the graph; where it does not, the page says where the answer is given."""
    with ExitStack() as stack:
        ledger = stack.enter_context(demo_ledger())
        graph = report_graph(ledger.blocking(), pauses_s={"papers": 0.0})
        url = stack.enter_context(serving(create_app(ledger, graphs={"reporter": graph})))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        context = browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
        stack.callback(context.close)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        for thread_id, answer in (("asks/1", "publish"), ("asks-2", "not yet"), ("asks-3", '{"publish": false}')):
            client.post("/threads", json={"thread_id": thread_id}).raise_for_status()
            asked = {"assistant_id": "reporter", "input": {"messages": [["user", "Heat pumps."]]}}
            path = f"/threads/{quote(thread_id, safe='')}/runs/wait"
            client.post(path, json=asked).raise_for_status()
            page.goto(f"/agents/{quote(thread_id, safe='')}")
            expect(page.locator("#inspector")).to_contain_text("This server runs reporter")
            assert "runs in" not in page.locator("#inspector").inner_text()
            if answer == "publish":
                page.get_by_role("button", name="publish").click()
            else:
                page.get_by_label("Answer, in words or as JSON").fill(answer)
                page.keyboard.press("Enter")
            expect(page.locator("#asks")).to_have_count(0)
            expect(page.locator(".chip.status-finished")).to_be_visible()
            expect(page.locator("#state")).to_contain_text("The report: ")
            shown = {"publish": "publish", "not yet": "not yet", '{"publish": false}': "{'publish': False}"}[answer]
            expect(page.locator("#state")).to_contain_text(f"The report: {shown}.")


def test_state_as_a_tree(page: Page, threads: Any) -> None:
    """Exactly what the step changed is marked against its parent; against another step, what differs from that."""
    del threads
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/agents/done-1")
    page.locator(".trace a:has(b:text-is('write'))").click()
    expect(page.locator(".trace a[aria-current]")).to_contain_text("write")

    def marked(mark: str) -> set[str]:
        return set(
            page.locator(f"[role=treeitem].{mark}").evaluate_all("nodes => nodes.map(node => node.dataset.path)")
        )

    expect(page.locator(".views")).to_contain_text("3 changed")
    assert marked("added") == {"/draft", "/messages/1", "/options/depth"}
    assert marked("removed") == {"/draft", "/options/depth"}
    assert marked("inner") == {"/messages", "/options"}
    assert {row.bounding_box()["height"] for row in page.locator(".tree .leaf:visible").all()} == {24}  # type: ignore[index]
    page.locator("#against").select_option(label="against input")
    expect(page.locator("[role=treeitem][data-path='/sources']")).to_have_class("is-list added")


def test_keys_of_a_thread(page: Page, threads: Any) -> None:
    """One goes through the steps, to the messages, to what waits, and to the comparison, without a reload."""
    del threads
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/agents/waits-1")
    loaded = page.evaluate("performance.timeOrigin")
    chosen = page.locator(".trace a[aria-current] b")
    last = chosen.inner_text()
    page.keyboard.press("k")
    expect(chosen).not_to_have_text(last)
    page.keyboard.press("j")
    expect(chosen).to_have_text(last)
    page.keyboard.press("m")
    expect(page.locator("#state article").first).to_be_visible()
    page.keyboard.press("s")
    expect(page.locator("#state .tree")).to_be_visible()
    page.keyboard.press("w")
    expect(page.locator("#asks")).to_be_focused()
    page.keyboard.press("c")
    expect(page.locator("#against")).to_be_focused()
    page.go_back()
    assert page.evaluate("performance.timeOrigin") == loaded


def test_thread_without_scripts(browser: Browser, demo: Demo, threads: Any) -> None:
    """Steps, the state and the question are all there to be read."""
    del threads
    context = browser.new_context(base_url=demo.url, java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto("/agents/waits-1")
    expect(page.locator(".trace b", has_text="3 nodes").first).to_be_visible()
    expect(page.locator(".tree > li", has_text="draft").first).to_be_visible()
    expect(page.get_by_text("Command(resume=").first).to_be_visible()
    page.locator(".trace a", has_text="plan").first.click()
    expect(page.locator(".trace a[aria-current]")).to_contain_text("plan")
    context.close()
