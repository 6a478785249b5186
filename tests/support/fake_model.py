"""A model on loopback that coding agents talk to: it answers in the wire form of each API, calls a tool once when a prompt says so, and records."""

import json
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Event = tuple[str | None, dict[str, Any]]


class FakeModel(ThreadingHTTPServer):
    """The server; `requests` are the bodies that it was sent, oldest first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def fake_model() -> Generator[FakeModel]:
    """A model that answers until the end of the block."""
    server = FakeModel()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeModel

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self._send("application/json", b'{"data":[],"models":[]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("count_tokens"):
            self._send("application/json", b'{"input_tokens":1}')
            return
        answers = {
            "/v1/messages": _anthropic,
            "/v1/responses": _responses,
            "/v1/chat/completions": _completions,
        }
        answer = _google if "GenerateContent" in path or "generateContent" in path else answers.get(path)
        if answer is None:
            self._send("application/json", b"{}")
            return
        self.server.requests.append(body)
        events = answer(body)
        lines = "".join((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events)
        end = "data: [DONE]\n\n" if path.endswith("completions") else ""
        self._send("text/event-stream", (lines + end).encode())

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _wants_tool(body: dict[str, Any]) -> bool:
    """Whether the last prompt asks for a tool that has not answered."""
    text = json.dumps(body)
    return text.rfind("use the tool") > max(text.rfind("tool-output"), text.rfind("Seen."))


def _anthropic(body: dict[str, Any]) -> Iterable[Event]:
    block: dict[str, Any] = {"type": "text", "text": ""}
    deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": "Seen."}]
    is_call = _wants_tool(body) and bool(body.get("tools"))
    if is_call:
        block = {"type": "tool_use", "id": f"toolu_{len(json.dumps(body))}", "name": "Bash", "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps({"command": "echo tool-output"})}]
    message = {"id": f"msg_{len(json.dumps(body))}", "type": "message", "role": "assistant", "model": "claude-opus-4-8"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    start: dict[str, Any] = message | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield "message_start", {"type": "message_start", "message": start}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    reason = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 1}}
    yield "message_stop", {"type": "message_stop"}


def _responses(body: dict[str, Any]) -> Iterable[Event]:
    number = len(json.dumps(body))
    names = [tool.get("name") for tool in body.get("tools", [])]
    item: dict[str, Any] = {"type": "message", "role": "assistant", "id": f"msg_{number}"}
    item["content"] = [{"type": "output_text", "text": "Seen.", "annotations": []}]
    if _wants_tool(body):
        arguments: dict[str, Any] = {"cmd": "echo tool-output"}
        name = "exec_command"
        if name not in names:
            name, arguments = "shell", {"command": ["echo", "tool-output"]}
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
        item["arguments"] = json.dumps(arguments)
    usage: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": None, "output_tokens_details": None}
    yield "response.created", {"type": "response.created", "response": {"id": f"resp_{number}"}}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    response = {"id": f"resp_{number}", "usage": usage, "output": [item]}
    yield "response.completed", {"type": "response.completed", "response": response}


def _completions(body: dict[str, Any]) -> Iterable[Event]:
    number = len(json.dumps(body))
    delta: dict[str, Any] = {"role": "assistant", "content": "Seen."}
    is_call = _wants_tool(body) and bool(body.get("tools"))
    if is_call:
        arguments = json.dumps({"command": "echo tool-output", "description": "Look"})
        call = {"index": 0, "id": f"call_{number}", "type": "function"}
        delta = {"role": "assistant", "tool_calls": [call | {"function": {"name": "bash", "arguments": arguments}}]}
    head = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1, "model": "m1"}
    yield None, head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if is_call else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield None, head | {"choices": [end], "usage": usage}


def _google(body: dict[str, Any]) -> Iterable[Event]:
    part: dict[str, Any] = {"text": "Seen."}
    if _wants_tool({"contents": body.get("contents")}) and body.get("tools"):  # tools are described behind them
        part = {"functionCall": {"name": "run_shell_command", "args": {"command": "echo tool-output"}}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    yield None, {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2}}
