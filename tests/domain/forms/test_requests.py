"""Requests that the vendors' own clients make of translated chains, to a server on this machine that knows the rules."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from threading import Thread
from typing import Any

import pytest
from tests.domain.forms.retold import retold
from tests.domain.forms.rules import broken_rules
from tests.domain.forms.stories import FORMS, tell
from tests.support.soak import examples

from chatledger.domain.forms.translate import translate

STORIES = examples(100)
ANSWERS: dict[str, tuple[str, str, Any]] = {
    # the end of the path; form, where its messages are in the body, and the least that its client takes for an answer
    "/v1/chat/completions": (
        "openai",
        "messages",
        {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
        },
    ),
    "/v1/responses": (
        "responses",
        "input",
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "status": "completed",
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": [
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "yes", "annotations": []}],
                }
            ],
        },
    ),
    "/v1/messages": (
        "anthropic",
        "messages",
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "yes"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    ),
    "/models/m:generateContent": (
        "google",
        "contents",
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "yes"}]}, "finishReason": "STOP"}]},
    ),
}


class _Api(BaseHTTPRequestHandler):
    """Takes requests that keep the rules, and answers others with 400 and the rules that they break."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        form, key, answer = next(value for path, value in ANSWERS.items() if self.path.endswith(path))
        requests: list[Any] = self.server.requests  # type: ignore[attr-defined]
        requests.append(body[key])
        broken = broken_rules(form, body[key])
        content = json.dumps({"error": {"message": "; ".join(broken), "code": 400}} if broken else answer).encode()
        self.send_response(400 if broken else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: a failure shows what was wrong."""


class Api:
    """The address of the server, and what it was asked."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.requests: list[Any] = []
        server.requests = self.requests  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Api(server)
        finally:
            server.shutdown()
            thread.join()


Ask = Callable[[list[Any]], str | None]


@contextmanager
def openai_client(url: str) -> Iterator[Ask]:
    from openai import OpenAI

    with OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
        yield lambda messages: client.chat.completions.create(model="m", messages=messages).choices[0].message.content


@contextmanager
def responses_client(url: str) -> Iterator[Ask]:
    from openai import OpenAI

    with OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
        yield lambda messages: client.responses.create(model="m", input=messages).output_text


@contextmanager
def anthropic_client(url: str) -> Iterator[Ask]:
    from anthropic import Anthropic

    def ask(messages: list[Any]) -> str:
        [block] = client.messages.create(model="m", max_tokens=9, messages=messages).content
        assert block.type == "text"
        return block.text

    with Anthropic(api_key="k", base_url=url, max_retries=0) as client:
        yield ask


@contextmanager
def google_client(url: str) -> Iterator[Ask]:
    from google.genai import Client
    from google.genai.types import HttpOptions

    with Client(api_key="k", vertexai=False, http_options=HttpOptions(base_url=url)) as client:
        yield lambda messages: client.models.generate_content(model="m", contents=messages).text


CLIENTS = {
    "openai": openai_client,
    "responses": responses_client,
    "anthropic": anthropic_client,
    "google": google_client,
}


@pytest.mark.guard
@pytest.mark.parametrize("form", CLIENTS)
def test_a_translated_chain_is_taken(form: str, api: Api) -> None:
    with CLIENTS[form](api.url) as ask:
        for source, seed in product([*FORMS, "mixed"], range(STORIES)):
            told = tell(random.Random(seed).randbytes(160), FORMS if source == "mixed" else [source])
            messages = list(translate(told.chain(), form).messages)

            assert "yes" == ask(messages)
            assert retold(form, messages) == retold(form, api.requests[-1])


@pytest.mark.parametrize("form", CLIENTS)
def test_a_chain_that_breaks_a_rule_is_refused(form: str, api: Api) -> None:
    refused: dict[str, list[Any]] = {
        "openai": [{"role": "tool", "tool_call_id": "a", "content": "rain"}],
        "responses": [{"type": "function_call_output", "call_id": "a", "output": "rain"}],
        "anthropic": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "rain"}]}],
        "google": [{"role": "user", "parts": [{"functionResponse": {"name": "a", "response": {"output": "rain"}}}]}],
    }

    with (
        CLIENTS[form](api.url) as ask,
        pytest.raises(Exception, match=r"answers no call|no call before|responses to 0 calls"),
    ):
        ask(refused[form])
