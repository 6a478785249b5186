# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# Some of these frameworks are not installed where types are checked.
"""
Record a conversation of each framework, as its own store or types write it: `python -m tests.recorded.record_chains [adapter]`.

An agent is asked, thinks, calls two tools at once, of which one fails, and answers. All but the model is the framework's own.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHAINS = Path(__file__).parent / "chains"
_QUESTION, _ANSWER = "Where is the fado?", "In Alfama."
_CALLS = (("call_1", "photo"), ("call_2", "hours"))
_ARGUMENTS = {"of": "Alfama"}


def photo(of: str) -> str:
    """Show a place."""
    return f"A photo of {of}."


def hours(of: str) -> str:
    """Say when a place is open."""
    msg = f"{of} is closed"
    raise ValueError(msg)


async def openai_agents() -> list[Any]:
    """Items of the SDK's own session."""
    from agents import Agent, Runner, SQLiteSession, function_tool
    from agents.testing import ScriptedModel, assistant_message, function_call

    calls = [function_call(name, json.dumps(_ARGUMENTS), call_id=call_id) for call_id, name in _CALLS]
    agent = Agent(
        name="guide",
        model=ScriptedModel([calls, [assistant_message(_ANSWER)]]),
        tools=[function_tool(photo), function_tool(hours)],
    )
    session = SQLiteSession("trip")
    await Runner.run(agent, _QUESTION, session=session)
    return list(await session.get_items())


async def pydantic_ai() -> list[Any]:
    """Messages of a run; a tool gives an image, the other one asks to be called again."""
    from pydantic_ai import Agent, BinaryContent, ModelRetry
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ThinkingPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def model(messages: list[Any], info: Any) -> ModelResponse:
        del info
        if len(messages) > 1:
            return ModelResponse([TextPart(_ANSWER)])
        return ModelResponse([ThinkingPart("Hm."), *(ToolCallPart(name, _ARGUMENTS, own) for own, name in _CALLS)])

    agent = Agent(FunctionModel(model), instructions="Be brief.")

    @agent.tool_plain(name="photo")
    def show(of: str) -> BinaryContent:
        del of
        return BinaryContent(b"\x89PNG", media_type="image/png")

    @agent.tool_plain(name="hours")
    def ask(of: str) -> str:
        raise ModelRetry(of)

    del show, ask
    done = await agent.run(_QUESTION)
    recorded: list[Any] = ModelMessagesTypeAdapter.dump_python(done.all_messages(), mode="json")
    return recorded


async def llamaindex() -> list[Any]:
    """Messages of an agent's memory."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from llama_index.core.memory import Memory

    def model(messages: Any, **options: Any) -> ChatMessage:
        del options
        if len(messages) > 1:
            return ChatMessage(_ANSWER, role="assistant")
        calls = [ToolCallBlock(tool_call_id=own, tool_name=name, tool_kwargs=_ARGUMENTS) for own, name in _CALLS]
        return ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Hm."), TextBlock(text="I look."), *calls])

    memory = Memory.from_defaults("trip", token_limit=100_000)
    agent = FunctionAgent(tools=[photo, hours], llm=MockFunctionCallingLLM(response_generator=model), streaming=False)
    await agent.run(_QUESTION, memory=memory)
    return [message.model_dump(mode="json") for message in await memory.aget_all()]


async def agent_framework() -> list[Any]:
    """Messages of the framework's own history."""
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        InMemoryHistoryProvider,
        Message,
    )

    calls = [Content.from_function_call(own, name, arguments=_ARGUMENTS) for own, name in _CALLS]
    steps = [
        Message("assistant", [_ANSWER], message_id="m2"),
        Message("assistant", ["I look.", *calls], message_id="m1"),
    ]

    class Client(FunctionInvocationLayer[Any], BaseChatClient[Any]):
        async def _step(self) -> ChatResponse[Any]:
            return ChatResponse(messages=[steps.pop()])

        def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
            return self._step()

    history = InMemoryHistoryProvider()
    agent = Agent(Client(), tools=[photo, hours], context_providers=[history])
    session = agent.create_session(session_id="trip")
    await agent.run(_QUESTION, session=session)
    return [message.to_dict() for message in session.state[history.source_id]["messages"]]


async def claude() -> list[Any]:
    """Entries that the command line of the SDK writes, with a server on this machine in the place of the API."""
    from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore, query

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    store = InMemorySessionStore()
    with tempfile.TemporaryDirectory() as home:
        options = ClaudeAgentOptions(
            session_store=store,
            cwd="/tmp",
            allowed_tools=["Bash", "Read"],
            env={
                "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
                "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CONFIG_DIR": home,
                "HOME": home,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
        )
        said = [message async for message in query(prompt=_QUESTION, options=options)]
    server.shutdown()
    entries = [entry async for entry in _entries_of(store, str(getattr(said[-1], "session_id", None)))]
    return [_shortened(entry) for entry in entries]


async def _entries_of(store: Any, session_id: str) -> AsyncIterator[Any]:
    for listed in await store.list_sessions("-tmp"):
        if listed["session_id"] == session_id:
            for entry in await store.load({"project_key": "-tmp", "session_id": session_id}):
                yield entry


def _shortened(value: Any) -> Any:
    """Long texts are the instructions of Claude Code, and of the machine that it ran on."""
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items() if key != "osVersion"}
    if isinstance(value, list):
        return [_shortened(one) for one in value[:2]]
    return value[:60] if isinstance(value, str) else value


class _Api(BaseHTTPRequestHandler):
    """Streams the answers of a model: two calls, and what it says of their results."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_done = "tool_result" in json.dumps(body["messages"])
        calls = [("toolu_1", "Bash", {"command": "echo Alfama"}), ("toolu_2", "Read", {"file_path": "/none/fado.md"})]
        blocks: list[Any] = [{"type": "text", "text": _ANSWER if is_done else "I look."}]
        if not is_done:
            blocks += [{"type": "tool_use", "id": own, "name": name, "input": given} for own, name, given in calls]
        stop = {"stop_reason": "end_turn" if is_done else "tool_use", "stop_sequence": None}
        message = {
            "id": f"msg_{is_done}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
        }
        usage = {"input_tokens": 3, "output_tokens": 5}
        events: list[Any] = [{"type": "message_start", "message": {**message, "usage": usage}}]
        for place, block in enumerate(blocks):
            at = {"index": place}
            key, kind = ("text", "text_delta") if block["type"] == "text" else ("partial_json", "input_json_delta")
            told = block["text"] if key == "text" else json.dumps(block["input"])
            empty = {**block, **({"text": ""} if key == "text" else {"input": {}})}
            events.append({"type": "content_block_start", "content_block": empty, **at})
            events.append({"type": "content_block_delta", "delta": {"type": kind, key: told}, **at})
            events.append({"type": "content_block_stop", **at})
        events += [{"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the base class
        pass


async def chatkit() -> list[Any]:
    """Items that a server of ChatKit makes of what it is asked, and tells."""
    from chatkit.server import ChatKitServer, StreamingResult
    from chatkit.types import (
        AssistantMessageContent,
        AssistantMessageItem,
        ClientToolCallItem,
        CustomTask,
        ThoughtTask,
        ThreadItem,
        ThreadItemDoneEvent,
        Workflow,
        WorkflowItem,
    )
    from pydantic import TypeAdapter

    import chatledger
    from chatledger.adapters.chatkit import LedgerStore

    class Server(ChatKitServer[None]):
        async def respond(self, thread: Any, input_user_message: Any, context: None) -> AsyncIterator[Any]:
            del input_user_message, context
            named: Any = {"thread_id": thread.id, "created_at": datetime(2026, 11, 2, 9, 30, tzinfo=UTC)}
            tasks: list[Any] = [ThoughtTask(content="Hm."), CustomTask(title="photo", content=photo("Alfama"))]
            yield ThreadItemDoneEvent(
                item=WorkflowItem(id="w1", workflow=Workflow(type="custom", tasks=tasks), **named)
            )
            content = [AssistantMessageContent(text=_ANSWER)]
            yield ThreadItemDoneEvent(item=AssistantMessageItem(id="a1", content=content, **named))
            call: Any = {
                "call_id": "call_2",
                "name": "hours",
                "arguments": _ARGUMENTS,
                "status": "completed",
                "output": "Closed.",
            }
            yield ThreadItemDoneEvent(item=ClientToolCallItem(id="c1", **call, **named))

    # ChatKit brings no store; what it tells is recorded, not what is stored.
    with chatledger.open("memory:") as ledger:
        said = {"content": [{"type": "input_text", "text": _QUESTION}], "attachments": [], "inference_options": {}}
        request = json.dumps({"type": "threads.create", "params": {"input": said}})
        result = await Server(LedgerStore(ledger)).process(request, None)
        assert isinstance(result, StreamingResult)
        lines = [json.loads(line.removeprefix(b"data: ")) async for line in result]
    items = [line["item"] for line in lines if line["type"] == "thread.item.done"]
    adapter = TypeAdapter(list[ThreadItem])
    recorded: list[Any] = adapter.dump_python(adapter.validate_python(items), mode="json")
    return recorded


async def strands() -> list[Any]:
    """Messages that the manager of Strands writes to files."""
    from strands import Agent, tool
    from strands.models.model import Model
    from strands.session.file_session_manager import FileSessionManager

    class Scripted(Model):  # type: ignore[misc]  # Strands is not installed where types are checked
        def update_config(self, **model_config: Any) -> None:
            pass

        def get_config(self) -> dict[str, Any]:
            return {}

        async def structured_output(self, *arguments: Any, **options: Any) -> Any:
            raise NotImplementedError
            yield {}

        async def stream(self, messages: Any, *arguments: Any, **options: Any) -> Any:
            is_done = len(messages) > 1
            yield {"messageStart": {"role": "assistant"}}
            for start, delta in [({}, {"text": _ANSWER})] if is_done else self._calls():
                yield {"contentBlockStart": {"start": start}}
                yield {"contentBlockDelta": {"delta": delta}}
                yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn" if is_done else "tool_use"}}

        @staticmethod
        def _calls() -> Any:
            yield {}, {"reasoningContent": {"text": "Hm."}}
            for own, name in _CALLS:
                yield {"toolUse": {"toolUseId": own, "name": name}}, {"toolUse": {"input": json.dumps(_ARGUMENTS)}}

    with tempfile.TemporaryDirectory() as folder:
        manager = FileSessionManager("trip", storage_dir=folder)
        agent = Agent(
            model=Scripted(), session_manager=manager, callback_handler=None, tools=[tool(photo), tool(hours)]
        )
        await agent.invoke_async(_QUESTION)
        return [json.loads(text) for text in _texts_in(folder, "message_*.json")]


async def adk() -> list[Any]:
    """Events of the kit's own session."""
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai import types

    class Scripted(BaseLlm):  # type: ignore[misc]  # ADK is not installed where types are checked
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:  # noqa: FBT001, FBT002 - ADK's
            del stream
            calls = [types.FunctionCall(id=own, name=name, args=_ARGUMENTS) for own, name in _CALLS]
            parts = [types.Part(text="Hm.", thought=True), *(types.Part(function_call=call) for call in calls)]
            is_done = len(llm_request.contents) > 1
            yield LlmResponse(
                content=types.Content(role="model", parts=[types.Part(text=_ANSWER)] if is_done else parts)
            )

    def closed(of: str) -> dict[str, str]:
        """Say when a place is open."""
        return {"error": f"{of} is closed"}

    closed.__name__ = "hours"
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="guide", user_id="ada")
    agent = LlmAgent(name="guide", model=Scripted(model="none"), tools=[photo, closed], output_key="last")
    runner = Runner(app_name="guide", agent=agent, session_service=sessions)
    content = types.Content(role="user", parts=[types.Part(text=_QUESTION)])
    async for _ in runner.run_async(user_id="ada", session_id=session.id, new_message=content):
        pass
    done = await sessions.get_session(app_name="guide", user_id="ada", session_id=session.id)
    return [event.model_dump(mode="json", by_alias=True, exclude_none=True) for event in done.events]


async def crewai() -> list[Any]:
    """A checkpoint of a crew as CrewAI's own provider gets it, and the states of a flow in its own database."""
    from crewai import CheckpointConfig
    from crewai.flow import Flow, listen, start
    from crewai.flow.persistence import SQLiteFlowPersistence, persist
    from crewai.state.provider.json_provider import JsonProvider
    from tests.support.adapters.crewai import crew

    with tempfile.TemporaryDirectory() as folder:
        config = CheckpointConfig(location=folder, provider=JsonProvider())
        await asyncio.to_thread(crew(_ANSWER, checkpoint=config).kickoff)
        checkpoint = {**json.loads(_texts_in(folder, "*.json")[0]), "event_record": None}

        @persist(SQLiteFlowPersistence(f"{folder}/flows.db"))
        class Trip(Flow):  # type: ignore[misc]  # CrewAI is not installed where types are checked
            @start()  # type: ignore[untyped-decorator]
            def ask(self) -> None:
                self.state["question"] = _QUESTION

            @listen(ask)  # type: ignore[untyped-decorator]
            def answer(self) -> None:
                self.state.update({"answer": _ANSWER, "at": [9.5, None]})

        await asyncio.to_thread(Trip().kickoff)
        with contextlib.closing(sqlite3.connect(f"{folder}/flows.db")) as database:
            rows = database.execute("SELECT method_name, state_json FROM flow_states ORDER BY id").fetchall()
    states = [{"method": method, "state": json.loads(state)} for method, state in rows]
    return [{"checkpoint": json.dumps(checkpoint)}, *states]


def _texts_in(folder: str, pattern: str) -> list[str]:
    files = sorted(Path(folder).rglob(pattern), key=lambda file: file.stat().st_mtime_ns)
    return [file.read_text(encoding="utf-8") for file in files]


RECORDERS: tuple[Callable[[], Any], ...] = (
    openai_agents,
    pydantic_ai,
    llamaindex,
    agent_framework,
    claude,
    chatkit,
    strands,
    adk,
    crewai,
)


def main(names: list[str]) -> None:
    for recorder in RECORDERS:
        if recorder.__name__ in names:
            chain = asyncio.run(recorder())
            text = json.dumps(chain, indent=1, ensure_ascii=False)
            (CHAINS / f"{recorder.__name__}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or [recorder.__name__ for recorder in RECORDERS])
