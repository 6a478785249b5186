"""The AI SDK: chats as `UIMessage[]`, turns, and live streams as UI message streams, for the real `ai` package too."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.http_world import API, serving
from tests.support.json_values import objects
from tests.support.node_world import installed, needs_node, run_node
from tests.support.soak import examples

import chatledger
from chatledger import AsyncLedger, Ledger, assistant
from chatledger.server import Principal, create_app

Message = dict[str, Any]


def part_of(kind: str, more: Message) -> Message:
    return more | {"type": kind}


def message_of(role: str, found: list[Message], more: Message) -> Message:
    return more | {"role": role, "parts": found}


parts = st.builds(part_of, st.sampled_from(["text", "step-start", "data-x"]), objects)
metadata: st.SearchStrategy[Message] = st.fixed_dictionaries({}, optional={"metadata": objects})
message_lists = st.lists(
    st.builds(message_of, st.sampled_from(["user", "assistant", "system"]), st.lists(parts, max_size=3), metadata),
    max_size=5,
)


@pytest.fixture(scope="module")
def ledger() -> AsyncLedger:
    return chatledger.open_async("memory:")


@pytest.fixture(scope="module")
def url(ledger: AsyncLedger) -> Iterator[str]:
    with serving(create_app(ledger)) as url:
        yield url


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url + "/api/chat", timeout=30) as client:
        yield client


@pytest.fixture
def blocking(url: str, ledger: AsyncLedger) -> Ledger:
    """The ledger that is served, for those who write beside the server."""
    assert url
    found = ledger.opened
    assert found is not None
    return found


def said(message_id: str, role: str, text: str, **more: str) -> Message:
    return {"id": message_id, "role": role, "parts": [{"type": "text", "text": text, **more}]}


def ids(http: httpx.Client, chat: str, **query: str) -> list[str]:
    return [message["id"] for message in http.get(f"/{chat}", params=query).json()]


def chunks_of(response: httpx.Response) -> list[Any]:
    """The data of the events, which are the chunks, and `[DONE]`."""
    data = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else msgspec.json.decode(one) for one in data]


numbers = iter(range(10**9))


@settings(max_examples=examples(60), deadline=None)
@given(message_lists, st.data())
def test_a_chat_comes_back_as_it_was_saved(http: httpx.Client, listed: list[Message], data: st.DataObject) -> None:
    chat = f"saved-{next(numbers)}"
    messages = [message | {"id": f"{chat}-{number}"} for number, message in enumerate(listed)]
    http.put(f"/{chat}", json=messages[: data.draw(st.integers(0, len(messages)))])
    kept = http.put(f"/{chat}", json=messages)
    assert kept.status_code == 200, kept.text
    position = kept.headers["Chatledger-Position"]
    assert http.get(f"/{chat}").json() == messages
    again = http.put(f"/{chat}", json=messages[data.draw(st.integers(0, len(messages))) :])
    assert (again.status_code, again.headers["Chatledger-Position"]) == (200, position)


def test_an_answer_is_regenerated_on_a_branch(http: httpx.Client) -> None:
    question, answer = said("re-1", "user", "Riga?"), said("re-2", "assistant", "Yes.")
    http.put("/re", json=[question, answer])
    turn = {"id": "re", "messages": [question], "trigger": "regenerate-message", "messageId": "re-2"}
    begun, again = (http.post("/re/messages", json=turn) for _ in range(2))
    assert begun.json() == again.json()
    assert begun.json() == {"branch": "main-v2", "headMessageId": "re-1", "ids": ["re-1"], "messages": [question]}
    kept = http.put("/re", json=[question, said("re-3", "assistant", "No.")]).json()
    assert kept == {"branch": "main-v2", "headMessageId": "re-3", "ids": ["re-1", "re-3"]}
    assert ids(http, "re") == ["re-1", "re-3"]
    assert ids(http, "re", branch="main") == ["re-1", "re-2"]
    bare = {"id": "re", "trigger": "regenerate-message"}
    assert http.post("/re/messages", json=bare).json()["branch"] == "main-v2-v2"
    assert http.post("/re/messages", json=bare | {"messageId": "re-2"}).json()["headMessageId"] == "re-1"
    assert http.post("/re/messages", json=bare | {"messageId": "absent"}).status_code == 404


def test_a_greeting_is_regenerated(http: httpx.Client) -> None:
    http.put("/hi", json=[said("hi-1", "assistant", "Hi")])
    turn: Message = {"id": "hi", "messages": [], "trigger": "regenerate-message", "messageId": "hi-1"}
    begun = http.post("/hi/messages", json=turn).json()
    assert begun == {"branch": "main-v2", "headMessageId": None, "ids": [], "messages": []}
    http.put("/hi", json=[said("hi-2", "assistant", "Hello")])
    assert ids(http, "hi") == ["hi-2"]
    assert ids(http, "hi", branch="main") == ["hi-1"]


def test_an_edit_makes_a_branch_once(http: httpx.Client) -> None:
    http.put("/ed", json=[said("ed-1", "user", "Riga?"), said("ed-2", "assistant", "Yes.")])
    edited = said("ed-1", "user", "Oslo?")
    turn = {"id": "ed", "messages": [edited], "trigger": "submit-message", "messageId": "ed-1"}
    begun, again = (http.post("/ed/messages", json=turn).json() for _ in range(2))
    assert begun == again
    assert begun["branch"] == "main-v2"
    (stored,) = begun["ids"]
    assert begun["messages"] == [edited | {"id": stored}]
    for _ in range(2):
        kept = http.put("/ed", json=[edited, said("ed-3", "assistant", "No.")]).json()
        assert kept == {"branch": "main-v2", "headMessageId": "ed-3", "ids": [stored, "ed-3"]}
    assert ids(http, "ed", branch="main") == ["ed-1", "ed-2"]


def test_an_answer_that_grows_is_one_version(http: httpx.Client, blocking: Ledger) -> None:
    """A tool that runs in the browser: the same answer is saved with its call, with the result, and with what follows."""
    question = said("grow-1", "user", "Where am I?")
    call = {"type": "tool-locate", "toolCallId": "c1", "state": "input-available", "input": {}}
    done = {**call, "state": "output-available", "output": {"city": "Riga"}}
    text = {"type": "text", "text": "In Riga."}
    states = [[call], [done], [done, text]]
    for parts in states:
        answer: Message = {"id": "grow-2", "role": "assistant", "parts": parts}
        for _ in range(2):
            kept = http.put("/grow", json=[question, answer]).json()
        assert kept["branch"] == "main"
        assert [message["parts"] for message in http.get("/grow").json()] == [question["parts"], parts]
    stored = blocking.get_messages("grow")
    assert len(stored) == 4, "earlier states stay"
    assert len(blocking.versions(stored[-1].id).ids) == 1
    thanks = said("grow-3", "user", "Thanks")
    shown = http.get("/grow").json()
    for listed in ([question, answer, thanks], [*shown, thanks]):  # as the client holds them, and as they were loaded
        assert http.put("/grow", json=listed).json()["branch"] == "main"
    assert ids(http, "grow")[2:] == ["grow-3"]
    other: Message = {"id": "grow-2", "role": "assistant", "parts": [{**done, "output": {"city": "Oslo"}}]}
    assert http.put("/grow", json=[question, other]).json()["branch"] == "main-v2", "another result is another version"
    bare = {"id": "grow", "trigger": "regenerate-message"}
    assert http.post("/grow/messages", json=bare).json()["headMessageId"] == "grow-1"


def test_what_follows_an_earlier_message_goes_to_a_branch(http: httpx.Client) -> None:
    first, second, third = (said(f"cut-{number}", "user", str(number)) for number in range(3))
    http.put("/cut", json=[first, second])
    http.put("/cut", json=[first, third])
    assert ids(http, "cut") == ["cut-0", "cut-2"]
    assert ids(http, "cut", branch="main") == ["cut-0", "cut-1"]
    http.put("/cut", json=[said("cut-3", "assistant", "the newest alone")])
    assert ids(http, "cut") == ["cut-0", "cut-2", "cut-3"]


def test_what_is_refused_changes_nothing(http: httpx.Client) -> None:
    message = said("bad-1", "user", "a")
    robot, numbered = message | {"role": "robot"}, message | {"id": 1}
    refused: list[Any] = [[{"id": "x"}], [message, message], [robot], [numbered], [1], {}]
    for bad in refused:
        assert http.put("/bad", json=bad).status_code == 422
    assert http.get("/bad").status_code == 404
    http.put("/other", json=[message])
    assert http.put("/bad", json=[message]).status_code == 409


def test_text_is_replayed_as_a_message_stream(http: httpx.Client, blocking: Ledger) -> None:
    question = said("live-1", "user", "Where?")
    http.put("/live", json=[question])
    assert http.get("/live/stream").status_code == 204
    with blocking.live("live") as writer:
        writer.write("In the ")
        writer.write("Old Town")
        writer.flush()
        with http.stream("GET", "/live/stream") as first, http.stream("GET", "/live/stream") as second:
            assert first.headers["x-vercel-ai-ui-message-stream"] == "v1"
            assert first.headers["content-type"].startswith("text/event-stream")
            writer.write(".")
            message = writer.commit()
            found = chunks_of(first)
            assert found == chunks_of(second)
    deltas = [{"type": "text-delta", "id": "text-1", "delta": text} for text in ("In the ", "Old Town", ".")]
    assert found == [
        {"type": "start", "messageId": message.id},
        {"type": "text-start", "id": "text-1"},
        *deltas,
        {"type": "text-end", "id": "text-1"},
        {"type": "finish"},
        "[DONE]",
    ]
    assert http.get("/live/stream").status_code == 204
    held = [question, said(message.id, "assistant", "In the Old Town.", state="done")]
    assert http.put("/live", json=held).json()["branch"] == "main"
    assert ids(http, "live") == ["live-1", message.id]


@pytest.mark.parametrize("door", ["ledger", "http"])
def test_an_answer_is_stored_under_the_id_that_its_stream_began_with(
    http: httpx.Client, blocking: Ledger, url: str, door: str
) -> None:
    """Also where it is more than the text: the browser, which saves it with that id, makes no other version of it."""
    chat = f"told-{door}"
    question, answer = said(f"{chat}-1", "user", "Where?"), said("", "assistant", "In the Old Town.", state="done")
    http.put(f"/{chat}", json=[question])
    path = f"{url}{API}/chats/{chat}/live"
    writer = blocking.live(chat) if door == "ledger" else None
    begun = http.post(path, json={}).json() if writer is None else {}
    if writer is None:
        body = {"epoch": begun["epoch"], "chunks": [{"type": "start"}]}
        http.post(f"{path}/{begun['id']}/chunks", json=body).raise_for_status()
    else:
        writer.write("In the ")
        writer.flush()
    with http.stream("GET", f"/{chat}/stream") as stream:
        if writer is None:
            body = {"epoch": begun["epoch"], "message": {"name": "assistant", "data": answer}}
            http.post(f"{path}/{begun['id']}/commit", json=body).raise_for_status()
        else:
            writer.commit(assistant({"role": "assistant", "parts": answer["parts"]}))
        told = chunks_of(stream)[0]["messageId"]
    assert ids(http, chat) == [question["id"], told]
    assert http.put(f"/{chat}", json=[question, answer | {"id": told}]).json()["ids"] == [question["id"], told]
    assert [branch.name for branch in blocking.list_branches(chat)] == ["main"]


def test_events_of_a_run_are_no_message(http: httpx.Client, blocking: Ledger) -> None:
    """A run of LangGraph's API on the same chat has a live stream too."""
    http.put("/run", json=[said("run-1", "user", "Where?")])
    with blocking.live("run") as message, blocking.live("run", name="run") as run:
        run.write(b".1 metadata\n{}")
        run.flush()
        message.write("here")
        with http.stream("GET", "/run/stream") as answer:
            message.commit()
            assert {"type": "text-delta", "id": "text-1", "delta": "here"} in chunks_of(answer)
        assert http.get("/run/stream").status_code == 204


def test_chunks_are_replayed_as_they_are(http: httpx.Client, blocking: Ledger) -> None:
    http.put("/mixed", json=[])
    written = [
        {"type": "start", "messageId": "m1"},
        {"type": "reasoning-start", "id": "r"},
        {"type": "reasoning-end", "id": "r"},
        {"type": "finish", "finishReason": "stop"},
    ]
    with blocking.live("mixed") as writer:
        for chunk in written:
            writer.write(chunk)
        writer.flush()
        with http.stream("GET", "/mixed/stream") as response:
            writer.discard()
            assert chunks_of(response) == [*written, "[DONE]"]


@pytest.mark.parametrize(
    ("end", "last"), [("discard", "abort"), ("close", "error")], ids=["given up", "its writer went"]
)
def test_a_stream_that_becomes_no_message(http: httpx.Client, blocking: Ledger, end: str, last: str) -> None:
    http.put(f"/{end}", json=[])
    with blocking.live(end) as writer:
        for piece in ("a", {"unknown": 1}, b"\x00", "b"):
            writer.write(piece)
        writer.flush()
        with http.stream("GET", f"/{end}/stream") as response:
            getattr(writer, end)()
            found = chunks_of(response)
    kinds = [chunk["type"] for chunk in found[:-1]]
    text = ["text-start", "text-delta", "text-end"]
    assert kinds == ["start", *text, "data-chunk", "data-chunk", *text, last]
    assert [chunk["data"] for chunk in found[:-1] if chunk["type"] == "data-chunk"] == [{"unknown": 1}, "AA=="]


def test_what_others_write_is_not_there() -> None:
    def authenticate(headers: Any) -> Principal:
        return Principal(user_id=headers["x-api-key"])

    served = chatledger.open_async("memory:")
    with serving(create_app(served, authenticate=authenticate)) as url:
        ada, bob = (httpx.Client(base_url=url + "/api/chat", headers={"x-api-key": name}) for name in ("ada", "bob"))
        with ada, bob:
            ada.put("/theirs", json=[said("t-1", "user", "secret")])
            assert served.opened is not None
            with served.opened.live("theirs") as writer:
                writer.write("secret")
                writer.flush()
                assert bob.get("/theirs/stream").status_code == 204
                writer.discard()
            assert bob.get("/theirs").status_code == bob.get("/absent").status_code == 404


SCRIPT = """
import { DefaultChatTransport, readUIMessageStream } from "ai";
const [, url, chatId] = process.argv;
const transport = new DefaultChatTransport({ api: url + "/api/chat" });
const stream = await transport.reconnectToStream({ chatId });
if (stream === null) console.log("null");
else {
  const states = [];
  for await (const message of readUIMessageStream({ stream, terminateOnError: true }))
    if (states.push(message) === 1) await fetch(url + "/api/chat/node-reads", { method: "PUT", body: "[]" });
  console.log(JSON.stringify({ count: states.length, last: states.at(-1) }));
}
"""


@needs_node
@pytest.mark.soak
def test_the_transport_of_the_ai_package(url: str, http: httpx.Client, blocking: Ledger) -> None:
    packages = installed("ai@7")
    http.put("/node%2F1", json=[said("node-1", "user", "Where?")])
    assert run_node(packages, SCRIPT, url, "node/1") is None
    with blocking.live("node/1") as writer, ThreadPoolExecutor() as threads:
        writer.write("In the ")
        writer.flush()
        running = threads.submit(run_node, packages, SCRIPT, url, "node/1")
        while http.get("/node-reads").status_code == 404 and not running.done():
            sleep(0.05)
        writer.write("Old Town")
        writer.commit()
        seen = running.result()
    (message,) = http.get("/node%2F1").json()[1:]
    assert seen["count"] >= 3
    assert {"id": seen["last"]["id"], "role": "assistant"} == {"id": message["id"], "role": message["role"]}
    assert seen["last"]["parts"] == [{"type": "text", "text": "In the Old Town", "state": "done"}]


HANDLER = """
import { createUIMessageStreamResponse, generateId, readUIMessageStream, simulateReadableStream } from "ai";
import { DefaultChatTransport } from "ai";
const [, url, chatId] = process.argv;
const LEDGER = url + "/api/chat";
/* keepLive */
const words = ["In ", "the ", "Old ", "Town"];
const chunks = [
  { type: "start", messageId: "a1" },
  { type: "text-start", id: "t" },
  ...words.map((delta) => ({ type: "text-delta", id: "t", delta })),
  { type: "text-end", id: "t" },
  { type: "finish" },
];
const response = createUIMessageStreamResponse({
  stream: simulateReadableStream({ chunks, initialDelayInMs: 0, chunkDelayInMs: 300 }),
  consumeSseStream: keepLive(chatId),
});
const own = response.text();
let stream = null;
while (stream === null) {
  await new Promise((resolve) => setTimeout(resolve, 50));
  stream = await new DefaultChatTransport({ api: LEDGER }).reconnectToStream({ chatId });
}
const texts = [];
for await (const message of readUIMessageStream({ stream, terminateOnError: true }))
  texts.push(message.parts.map((part) => part.text ?? "").join(""));
await own;
let after;
do after = (await fetch(`${LEDGER}/${chatId}/stream`)).status; while (after !== 204);
console.log(JSON.stringify({ count: texts.length, last: texts.at(-1), after }));
"""


@needs_node
@pytest.mark.soak
def test_a_route_handler_writes_what_a_reload_resumes(url: str, http: httpx.Client) -> None:
    """With the code of the page about the AI SDK, and the package itself on both sides."""
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "ai-sdk.md").read_text()
    code = page.partition("<!-- tested by Node -->\n```typescript\n")[2].partition("```")[0]
    http.put("/reload", json=[said("reload-1", "user", "Where?")])
    seen = run_node(installed("ai@7"), HANDLER.replace("/* keepLive */", code), url, "reload")
    assert seen["count"] >= 3
    assert (seen["last"], seen["after"]) == ("In the Old Town", 204)
