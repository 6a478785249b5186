"""MCP's tools with the real client: over streamable HTTP on a real socket, and over stdio with a process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from tests.support.http_world import serving
from tests.support.mcp_world import authenticate, call, over_http, over_stdio, refusal

import chatledger
from chatledger import NewMessage, user
from chatledger.infra.entrypoints.mcp.tools import WRITING
from chatledger.server import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("mcp")]  # one worker imports the SDK

READ_TOOLS = {
    "search_conversations",
    "list_conversations",
    "read_conversation",
    "read_around",
    "list_branches",
    "diff",
    "read_as_of",
    "history",
    "list_members",
}
WRITE_TOOLS = {"append", "fork", "merge", "checkpoint", "annotate", "set_member", "remove_member"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def fill(ledger: chatledger.Ledger) -> None:
    """Ann's trip with two lines and a checkpoint, and a chat of Bob's."""
    ledger.create_chat("trip", "ann", title="A weekend", metadata={"topic": "travel"})
    roles = ("user", "assistant")
    texts = ("Where to go?", "To the northern lights.", "When?", "In winter.")
    ledger.append("trip", [NewMessage(roles[i % 2], text, id=f"m{i}") for i, text in enumerate(texts)])
    ledger.set_checkpoint("trip", "start", "m0")
    ledger.create_branch("trip", "south", "m1")
    ledger.append("trip", [NewMessage("user", "Rather to the sea.", id="s2")], branch="south")
    ledger.create_chat("bobs", "bob", title="Secret")
    ledger.append("bobs", [NewMessage("user", "northern secrets", id="b0")])
    ledger.set_checkpoint("bobs", "start", "b0")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = create_app(chatledger.open_async("memory:"), authenticate=authenticate, enable=["mcp"], mcp_can_write=True)
    with serving(app) as url:
        anyio.run(app.state.service.ledger.run, fill)
        yield url


async def test_tools_say_what_they_do(url: str) -> None:
    """Reading tools are annotated as such, writing ones are there for those who may write, and none deletes."""
    async with over_http(url, "ann") as client:
        tools = (await client.list_tools()).tools
    async with over_http(url, "reader") as client:
        fewer = (await client.list_tools()).tools

    assert {tool.name for tool in tools} == READ_TOOLS | WRITE_TOOLS
    assert {tool.name for tool in fewer} == READ_TOOLS
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (tool.name in READ_TOOLS)
        assert tool.description
        assert tool.output_schema is not None
        assert tool.input_schema["type"] == "object"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_assistant_reads(url: str, mode: str) -> None:
    async with over_http(url, "reader", mode) as client:
        (hit,) = (await call(client, "search_conversations", query="northern"))["hits"]
        around = await call(client, "read_around", message=hit["message"], n=1)
        (listed,) = (await call(client, "list_conversations", metadata={"topic": "travel"}))["conversations"]
        branches = await call(client, "list_branches", conversation="trip")
        south = await call(client, "read_conversation", conversation="trip", branch="south")
        page = await call(client, "read_conversation", conversation="trip", limit=2)
        earlier = await call(client, "read_conversation", conversation="trip", limit=2, before=page["before"])
        found = await call(client, "diff", conversation="trip", a="main", b="south")
        events = (await call(client, "history", conversation="trip"))["events"]
        then = await call(client, "read_as_of", conversation="trip", time=str(events[1]["position"]), branch="main")

    assert (hit["snippet"], hit["matches"]) == ("To the northern lights.", [[7, 15]])
    assert [said["id"] for said in around["messages"]] == ["m0", "m1", "m2"]
    assert (listed["title"], listed["message_count"]) == ("A weekend", 5)
    assert [each["name"] for each in branches["branches"]] == ["main", "south"]
    assert [each["message"] for each in branches["checkpoints"]] == ["m0"]
    assert [said["id"] for said in south["messages"]] == ["m0", "m1", "s2"]
    assert [said["id"] for said in earlier["messages"] + page["messages"]] == ["m0", "m1", "m2", "m3"]
    assert "before" not in earlier
    assert found["common"]["id"] == "m1"
    assert [[said["id"] for said in found[side]] for side in ("only_a", "only_b")] == [["m2", "m3"], ["s2"]]
    assert [event["type"] for event in events[:3]] == ["chat_created", "message_appended", "checkpoint_set"]
    assert [said["id"] for said in then["messages"]] == ["m0", "m1", "m2", "m3"]


async def test_the_owners_assistant_chooses_members(url: str) -> None:
    async with over_http(url, "ann") as client:
        made = await call(client, "set_member", conversation="trip", user="bob", role="reader")
        listed = await call(client, "list_members", conversation="trip")
    async with over_http(url, "bob") as bob:
        assert [each["user"] for each in (await call(bob, "list_members", conversation="trip"))["members"]] == ["bob"]
        assert "only the owner" in await refusal(bob, "set_member", conversation="trip", user="bob", role="writer")
    async with over_http(url, "ann") as client:
        removed = [await call(client, "remove_member", conversation="trip", user="bob") for _ in range(2)]
        assert await call(client, "list_members", conversation="trip") == {"members": []}
    async with over_http(url, "bob") as bob:
        assert "no chat 'trip'" in await refusal(bob, "list_members", conversation="trip")

    assert listed == {"members": [made]}
    assert (made["user"], made["role"]) == ("bob", "reader")
    assert removed == [{"removed": True}, {"removed": False}]


async def test_conversations_of_a_period(url: str) -> None:
    async with over_http(url, "ann") as client:
        first = await call(client, "list_conversations", limit=1)
        times = [each["updated_at"] for each in first["conversations"]]
        since = await call(client, "list_conversations", since=times[0])
        until = await call(client, "list_conversations", until="2001-01-01")

    assert len(since["conversations"]) == 1
    assert until["conversations"] == []


async def test_notes_at_the_same_time_all_stay(url: str) -> None:
    """The keys are set where they are decided on, not among those that were read before."""
    async with over_http(url, "writer") as client, anyio.create_task_group() as tasks:
        for number in range(20):
            arguments = {"conversation": "trip", "message": "m0", "metadata": {f"{number}": number}}
            tasks.start_soon(lambda given: call(client, "annotate", **given), arguments)
    async with over_http(url, "writer") as client:
        note = await call(client, "annotate", conversation="trip", message="m0", metadata={})
    assert len(note["metadata"]) == 20


async def test_an_assistant_writes(url: str) -> None:
    """With the scope, and as itself: the log names the user."""
    async with over_http(url, "writer") as client:
        made = await call(client, "fork", conversation="trip", message="m1")
        turns = [{"role": "user", "text": "Or to the lakes?", "id": "l2"}]
        arguments = {"conversation": "trip", "branch": made["name"], "messages": turns}
        stored, again = [await call(client, "append", **arguments, expected_head=head) for head in ("m1", "l2")]
        other = await call(client, "fork", conversation="trip", message="m1")
        merging = {"conversation": "trip", "branch": made["name"], "into": other["name"], "summary": "The lakes it is."}
        merged, nothing = [await call(client, "merge", **merging) for _ in range(2)]
        named = await call(client, "checkpoint", conversation="trip", name="lakes", message="l2")
        await call(client, "annotate", conversation="trip", message="l2", metadata={"mood": "good"})
        note = await call(client, "annotate", conversation="trip", message="l2", metadata={"size": 1})
        read = await call(client, "read_conversation", conversation="trip", branch=made["name"])
        event = (await call(client, "history", conversation="trip"))["events"][-1]

    assert stored == again
    assert ([message["text"] for message in merged["messages"]], nothing["messages"]) == (
        [f"Summary of branch {made['name']}:\n\nThe lakes it is."],
        [],
    )
    assert (made["is_active"], named["message"]) == (False, "l2")
    assert note["metadata"] == {"mood": "good", "size": 1}
    assert (read["messages"][-1]["text"], read["messages"][-1]["note"]) == ("Or to the lakes?", note["metadata"])
    assert event["actor"] == "ann"


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("read_conversation", {"conversation": "nope"}, "no chat 'nope'"),
        ("read_conversation", {}, "missing required field `conversation`"),
        ("read_conversation", {"conversation": "trip", "limit": 1000}, "<= 100"),
        ("read_conversation", {"conversation": "trip", "branch": "nope"}, "nope"),
        ("read_conversation", {"chat": "trip"}, "unknown field `chat`"),
        ("read_around", {"message": "nope"}, "nope"),
        ("read_as_of", {"conversation": "trip", "time": "someday"}, "ISO 8601"),
        ("diff", {"a": "m0", "b": "nope"}, "nope"),
        ("delete_chat", {"conversation": "trip"}, "no tool 'delete_chat'"),
        ("append", {"conversation": "trip", "messages": []}, "length >= 1"),
        ("append", {"conversation": "trip", "messages": [{"role": "user", "text": "x"}], "expected_head": "m0"}, "m3"),
    ],
)
async def test_refusals_are_answers_in_words(url: str, tool: str, arguments: dict[str, object], words: str) -> None:
    async with over_http(url, "ann") as client:
        before = await call(client, "history", conversation="trip")
        said = await refusal(client, tool, **arguments)

        assert words in said
        assert await call(client, "history", conversation="trip") == before


async def test_reading_does_not_include_writing(url: str) -> None:
    async with over_http(url, "reader") as client:
        said = await refusal(client, "fork", conversation="trip", message="m0")

    assert "scope 'write'" in said


OF_BOB: dict[str, dict[str, Any]] = {
    "search_conversations": {"query": "secrets", "conversation": "bobs"},
    "read_conversation": {"conversation": "bobs"},
    "read_around": {"message": "b0"},
    "list_branches": {"conversation": "bobs"},
    "diff": {"a": "b0", "b": "b0"},
    "read_as_of": {"conversation": "bobs", "time": "2999-01-01"},
    "history": {"conversation": "bobs"},
    "list_members": {"conversation": "bobs"},
    "append": {"conversation": "bobs", "messages": [{"role": "user", "text": "x"}]},
    "fork": {"conversation": "bobs", "message": "b0"},
    "merge": {"conversation": "bobs", "branch": "main-v2", "summary": "x"},
    "set_member": {"conversation": "bobs", "user": "ann", "role": "reader"},
    "remove_member": {"conversation": "bobs", "user": "ann"},
    "checkpoint": {"conversation": "bobs", "name": "x", "message": "b0"},
    "annotate": {"conversation": "bobs", "message": "b0", "metadata": {"x": 1}},
    "list_conversations": {"user": "bob"},
}


@pytest.mark.matrix
@pytest.mark.parametrize("tool", sorted(READ_TOOLS | WRITE_TOOLS))
async def test_what_belongs_to_others_is_not_there(url: str, tool: str) -> None:
    """Each tool answers the same for ids of another user and for ids that nobody has."""
    absent = {"bobs": "none", "b0": "n0", "bob": "ned"}
    elsewhere = {name: absent.get(str(value), value) for name, value in OF_BOB[tool].items()}
    async with over_http(url, "ann") as client:
        theirs = await client.call_tool(tool, OF_BOB[tool])
        nobodys = await client.call_tool(tool, elsewhere)
    told = theirs.model_dump_json()
    for name, other in absent.items():
        told = told.replace(f"'{name}'", f"'{other}'")

    assert told == nobodys.model_dump_json()
    assert "ecret" not in told


async def test_resources_and_prompts_of_others_are_not_there(url: str) -> None:
    from mcp.shared.exceptions import MCPError

    async with over_http(url, "ann") as client:
        for part in ("", "/branches/main", "/messages/b0", "/checkpoints/start"):
            with pytest.raises(MCPError) as theirs:
                await client.read_resource(f"chatledger://chats/bobs{part}")
            with pytest.raises(MCPError) as nobodys:
                await client.read_resource(f"chatledger://chats/none{part.replace('b0', 'n0')}")
            told = str(theirs.value).replace("bobs", "none").replace("b0", "n0")
            assert told == str(nobodys.value)
        with pytest.raises(MCPError, match="no chat 'bobs'"):
            await client.get_prompt("summarise", {"conversation": "bobs"})
        with pytest.raises(MCPError, match="no chat 'bobs'"):
            await client.get_prompt("continue_from", {"conversation": "bobs", "checkpoint": "start"})


async def test_who_may_not_read_gets_nothing(url: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx.AsyncClient(base_url=url) as client:
        for key, status in (("", 401), ("wrong", 401), ("nobody", 403)):
            answer = await client.post("/mcp", json=body, headers={"X-Api-Key": key})
            assert (answer.status_code, answer.json()["status"]) == (status, status)
        assert (await client.get("/mcp", headers={"X-Api-Key": "ann"})).status_code == 405


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("own", 200),
        ("http://localhost:6274", 200),
        ("http://127.0.0.1:6274", 403),
        ("https://evil.example", 403),
        ("http://127.0.0.1.evil.example:8230", 403),
        ("null", 403),
    ],
)
async def test_foreign_web_pages_are_refused(open_url: str, origin: str | None, status: int) -> None:
    """Where nobody has to say who they are: those of the server's own and of `cors` are let in."""
    origin = open_url if origin == "own" else origin
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream"} | ({} if origin is None else {"Origin": origin})
    async with httpx.AsyncClient(base_url=open_url) as client:
        answer = await client.post("/mcp", json=body, headers=headers)
    assert answer.status_code == status


@pytest.fixture(scope="module")
def open_url() -> Iterator[str]:
    app = create_app(chatledger.open_async("memory:"), enable=["mcp"], cors=["http://localhost:6274"])
    with serving(app) as url:
        yield url


async def test_calls_are_answered_at_once(open_url: str) -> None:
    """In one piece, not as a stream, which would be cut when the server stops."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_conversations"}}
    headers = {"Accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(base_url=open_url) as client:
        answer = await client.post("/mcp", json=body, headers=headers)

    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"]["structuredContent"] == {"conversations": []}


async def test_writing_has_to_be_allowed(open_url: str) -> None:
    """Without `mcp_can_write` nobody writes, whatever their scopes."""
    async with over_http(open_url) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READ_TOOLS
        assert "no tool 'append'" in await refusal(client, "append", conversation="x", messages=[])


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A ledger on a disk that processes share."""
    location = f"sqlite:///{tmp_path / 'ledger.db'}"
    with chatledger.open(location) as ledger:
        fill(ledger)
    return location


@pytest.mark.guard
@pytest.mark.parametrize("is_before_the_verb", [True, False])
async def test_a_process_serves_one_user(stored: str, *, is_before_the_verb: bool) -> None:
    before, options = [(), ("--as-user", "bob")][:: -1 if is_before_the_verb else 1]
    async with over_stdio(stored, *options, before=before) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        listed = await call(client, "list_conversations")
        said = await refusal(client, "read_conversation", conversation="trip")

    assert tools == READ_TOOLS
    assert [each["id"] for each in listed["conversations"]] == ["bobs"]
    assert "no chat 'trip'" in said


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_process_writes_when_allowed(stored: str, mode: str) -> None:
    async with over_stdio(stored, "--allow-write", mode=mode) as client:
        turns = [{"role": "user", "text": "hello from an assistant"}]
        await call(client, "append", conversation="trip", messages=turns)
        found = await call(client, "search_conversations", query='"from an assistant"')

    assert len(found["hits"]) == 1
    with chatledger.open(stored) as ledger:
        assert ledger.get_messages("trip")[-1].text == "hello from an assistant"


def test_no_tool_hides_messages() -> None:
    """An assistant adds notes; what a message says, and who sees it, stays with people."""
    annotate = next(tool for tool in WRITING if tool.name == "annotate")
    with chatledger.open("memory:") as ledger:
        chat = ledger.create_chat("c", "ann")
        (message,) = ledger.append(chat.id, [user("x")])
        with pytest.raises(chatledger.InvalidValueError, match="hidden"):
            annotate.answer(
                ledger,
                {"conversation": "c", "message": message.id, "metadata": {}, "hidden": True},
            )
        assert ledger.get_annotations("c") == {}


@pytest.mark.soak
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_process(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """At once, although it waits for input, and the ledger is closed."""
    location = str(tmp_path / "ledger")
    chatledger.open(location).close()
    command = [sys.executable, "-m", "chatledger", "--location", location, "mcp"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert b"chatledger" in process.stdout.readline()
        process.send_signal(number)
        assert process.wait(30) == code

    with chatledger.open(location) as ledger:
        assert ledger.list_chats() == []
