"""Chat interfaces built on LangGraph's clients, in a real browser: the text of the page after each step."""

import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import Browser, Locator, Page, Response

from .canonical import Json, Names, canonical
from .servers import Server, listening

_CLOCK: Final = re.compile(r"\b\d\d:\d\d\b")
SETTLED_S: Final = 1.0
PATIENCE_S: Final = 60


class Visit:
    """
    A page on a server.

    Attributes:
        outcomes: The text of the page, and the requests that failed, by the name of the step.
    """

    def __init__(self, page: Page, server: Server, area: str, busy: str) -> None:
        self.page, self.server = page, server
        self.outcomes: dict[str, Json] = {}
        self._area, self._busy = area, page.get_by_role("button", name=busy)
        self._failed: list[str] = []
        page.on("pageerror", lambda error: self._failed.append(str(error)))
        page.on(
            "response", lambda response: self._failed.append(_line_of(response)) if response.status >= 400 else None
        )

    def button(self, name: str) -> Locator:
        """Return the first button of this very name."""
        return self.page.get_by_role("button", name=name, exact=True).first

    def write(self, text: str) -> None:
        """Send a message."""
        box = self.page.locator("textarea").last
        box.fill(text)
        box.press("Enter")

    def say(self, name: str, text: str) -> None:
        """Send a message, and note what comes of it."""
        self.write(text)
        self.note(name)

    def hold(self, gate: str) -> None:
        """Send a message whose answer stops in the middle, and wait for the first half."""
        self.write(f"hold {gate}")
        self.page.get_by_text(f"Before {gate}").first.wait_for()

    def note(self, name: str, *, is_busy: bool = False) -> None:
        """Note the text of the page when it has settled; `is_busy` where a run goes on."""
        text = ""
        for _ in range(int(PATIENCE_S / SETTLED_S)):
            before, text = text, self.page.locator("body").inner_text()
            if text == before and (is_busy or self._busy.count() == 0):
                break
            self.page.wait_for_timeout(SETTLED_S * 1000)
        else:
            msg = f"{self._area}, {name}: the page did not come to rest on {self.server.name}:\n{text}"
            raise RuntimeError(msg)
        lines = [_CLOCK.sub("<clock>", line.strip()) for line in text.splitlines() if line.strip()]
        outcome = {"text": lines, "failed": sorted(self._failed)}
        self.outcomes[f"{self._area}: {name}"] = canonical(outcome, Names({}, self.server.url))
        self._failed.clear()


def _line_of(response: Response) -> str:
    return f"{response.request.method} {response.url} {response.status}"


def use_agent_chat_ui(visit: Visit, address: str) -> None:
    """Talk, edit, choose among branches, answer questions, and come back to an answer in agent-chat-ui."""
    page = visit.page

    def message(text: str) -> Locator:
        shown = page.locator(".group").filter(has_text=re.compile(f"^{text}")).last
        shown.hover()
        return shown

    page.goto(f"{address}/?assistantId=agent&apiUrl={visit.server.url}")
    visit.note("start")
    visit.write("hello")
    page.wait_for_function(
        "/^Thread History\\s+hello/.test(document.body.innerText)"
    )  # it looks for threads after a while
    visit.note("hello")
    visit.say("tool", "weather Oslo")
    visit.say("third", "third question")
    message("third question").get_by_role("button", name="Edit").click()
    page.locator("textarea").first.fill("third edited")
    visit.button("Submit").click()
    visit.note("edit")
    for again in ("regenerate", "regenerate again"):
        message("Answer").get_by_role("button", name="Refresh").click()
        visit.note(again)
    message("Answer").locator("button").first.click()
    visit.note("former answer")
    message("third edited").locator("button").first.click()
    visit.note("former question")
    visit.say("on the former branch", "on the old branch")

    visit.say("approve", "approve it")
    visit.button("Approve").click()
    visit.note("approved")
    visit.say("approve again", "approve again")
    page.get_by_placeholder("Share feedback").fill("no thanks")
    visit.button("Submit rejection").click()
    visit.note("rejected")
    visit.say("question", "ask me")
    visit.say("subgraph", "research moths")
    visit.say("question of a subgraph", "research approve")
    visit.write("fail")
    toast = page.get_by_text("the model is broken").first
    toast.wait_for()
    toast.wait_for(state="hidden")
    visit.note("failure")

    visit.hold("chat-reload")
    page.reload()
    visit.note("reload in the middle", is_busy=True)
    visit.server.open_gate("chat-reload")
    visit.note("after it")
    page.goto(f"{page.url}&chatHistoryOpen=true")
    visit.note("history")
    visit.hold("chat-cancel")
    visit.button("Cancel").click()
    visit.note("cancel")
    visit.server.open_gate("chat-cancel")
    visit.say("after the cancel", "after cancel")


def use_deep_agents_ui(visit: Visit, address: str) -> None:
    """Talk, approve, come back to an answer and stop one in deep-agents-ui."""
    page = visit.page
    config = json.dumps({"deploymentUrl": visit.server.url, "assistantId": "agent"})
    page.add_init_script(f"localStorage.setItem('deep-agent-config', {json.dumps(config)})")
    page.goto(f"{address}/?sidebar=1")
    visit.note("start")
    visit.say("hello", "hello")
    visit.say("tool", "weather Oslo")
    visit.say("subgraph", "research moths")
    visit.say("approve", "approve it")
    if visit.button("Approve").count() == 0:  # the call is folded
        page.get_by_role("button", name="send_mail").last.click()
    visit.button("Approve").click()
    visit.note("approved")
    visit.say("question", "ask me")
    visit.hold("deep-reload")
    page.reload()
    page.get_by_text("Before deep-reload").first.wait_for()
    visit.note("reload in the middle", is_busy=True)
    visit.server.open_gate("deep-reload")
    visit.note("after it")
    visit.hold("deep-stop")
    visit.button("Stop").click()
    visit.note("stop")
    visit.say("after the stop", "after stop")


class Interface(NamedTuple):
    """A chat interface, and the button that it has while a run goes on."""

    use: Callable[[Visit, str], None]
    busy: str


INTERFACES: Final = {
    "agent-chat-ui": Interface(use_agent_chat_ui, busy="Cancel"),
    "deep-agents-ui": Interface(use_deep_agents_ui, busy="Stop"),
}


@contextmanager
def serving(checkout: Path, port: int, log: Path) -> Generator[str]:
    """
    Serve a checkout of an interface. Gives its address.

    Raises:
        RuntimeError: It was not built.
    """
    if not (checkout / ".next" / "BUILD_ID").exists():
        msg = f"build it first: cd {checkout} && npm install && npx next build"
        raise RuntimeError(msg)
    command = ["node", "node_modules/next/dist/bin/next", "start", "--port", str(port)]
    address = f"http://localhost:{port}"
    with listening(command, checkout, address, log):
        yield address


def visit(name: str, address: str, browser: Browser, server: Server, shots: Path) -> dict[str, Json]:
    """Use an interface on a server. Returns the outcomes of its steps; what is seen when a step fails goes into `shots`."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(20_000)
    page = context.new_page()
    visiting = Visit(page, server, name, INTERFACES[name].busy)
    try:
        INTERFACES[name].use(visiting, address)
    except Exception:
        page.screenshot(path=shots / f"{name}-{server.name}.png")
        raise
    finally:
        context.close()
    return visiting.outcomes
