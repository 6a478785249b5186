"""A page with nothing but a <cl-graph>, and what it told."""

from typing import Any

from playwright.sync_api import Page

_PUT = """async attributes => {
  const script = document.querySelector('script[src*="/static/"]');
  const at = name => script.src.replace("frame.js", name);
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: at("panes.css") });
  const isStyled = new Promise(done => style.addEventListener("load", done));
  document.head.append(style);
  await isStyled;
  const graph = document.createElement("cl-graph");
  graph.style.height = "70vh";
  for (const [name, value] of Object.entries(attributes)) graph.setAttribute(name, value);
  window.told = [];
  window.began = performance.now();
  const isReady = new Promise(done => graph.addEventListener("cl-ready", () => {
    requestAnimationFrame(() => { window.painted = performance.now(); done(); });
  }));
  for (const type of ["cl-select", "cl-open", "cl-fork", "cl-error"]) {
    graph.addEventListener(type, ({ detail }) => window.told.push({ type, ...(detail.id ? detail : { text: String(detail) }) }));
  }
  await import(at("graph.js"));
  const title = document.createElement("h1");
  title.textContent = "Graph";
  document.querySelector(".crumbs").replaceChildren(title);
  document.querySelector("main").replaceChildren(graph);
  await isReady;
}"""


def put_graph(page: Page, chat: str, **attributes: str) -> None:
    """Show the graph of a chat, alone on a page of the explorer, and wait until its first rows are drawn."""
    page.goto("/")
    page.evaluate(_PUT, {"chat": chat} | attributes)


def told(page: Page) -> list[dict[str, Any]]:
    """The events that the graph dispatched: each with its type and its detail."""
    found: list[dict[str, Any]] = page.evaluate("window.told")
    return found


def state_of(page: Page) -> dict[str, Any]:
    """How far the graph has read the chat."""
    found: dict[str, Any] = page.locator("cl-graph").evaluate(
        "({ rows: { total, lanes, version, windows } }) => ({ total, lanes, version, windows: windows.size })"
    )
    return found
