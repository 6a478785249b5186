"""
Rules of the frameworks' own messages, as `rules` has those of the APIs: as JSON, in the shape in which each framework stores them.

A framework hands its messages to whatever model it has, so what OpenAI and Anthropic demand of calls and results is demanded here too.
The types of Strands and ADK are not among the development dependencies: their adapters' own tests read what is written.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from pydantic import TypeAdapter
from tests.domain.forms.rules import Exchange, Json, Rules, as_list, broken_ids, broken_pairs, ids_of


def _langchain(messages: list[Any], *, may_be_open: bool) -> list[str]:
    from langchain_core.messages import AIMessage, ToolMessage, messages_from_dict

    broken, exchanges = list[str](), list[Exchange]()
    try:
        values = messages_from_dict(messages)
    except Exception as error:  # noqa: BLE001 -- whatever the framework's own reader says
        return [f"type: {error!r}"]
    for index, message in enumerate(values):
        # A call whose arguments are no object is invalid, and goes to the model as a call (langchain-core `messages/tool.py`).
        calls = [*message.tool_calls, *message.invalid_tool_calls] if isinstance(message, AIMessage) else []
        answers = [message.tool_call_id] if isinstance(message, ToolMessage) else []
        exchanges.append((str(index), [str(call["id"]) for call in calls], answers))
        if not (message.content or calls or answers):
            broken.append(f"{index}: a message of nothing")
    return broken + _paired(exchanges, may_be_open=may_be_open)


def _pydantic_ai(messages: list[Any], *, may_be_open: bool) -> list[str]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    broken = _broken_types(ModelMessagesTypeAdapter, messages)
    exchanges, names = list[Exchange](), dict[str, str]()
    for index, message in enumerate(messages):
        parts = as_list(message.get("parts"))
        kinds = [str(part.get("part_kind")) for part in parts]
        # Parts of a request and of a response are two unions (`ModelRequestPart`, `ModelResponsePart`).
        calls = [part for part in parts if part.get("part_kind") == "tool-call"]
        answers = [
            part for part in parts if part.get("part_kind") in {"tool-return", "retry-prompt"} and part.get("tool_name")
        ]
        exchanges.append((str(index), ids_of(calls, "tool_call_id"), ids_of(answers, "tool_call_id")))
        names |= {str(call["tool_call_id"]): str(call["tool_name"]) for call in calls}
        wrong = [part for part in answers if names.get(str(part["tool_call_id"])) != part["tool_name"]]
        broken += [f"{index}: a return of {part['tool_name']!r} for another tool" for part in wrong]
        # "Cannot provide a new user prompt when the message history contains unprocessed tool calls" (pydantic-ai
        # `_agent_graph.py`), and Anthropic's results come first.
        if "tool-return" in kinds and "user-prompt" in kinds[: kinds.index("tool-return")]:
            broken.append(f"{index}: a prompt before a return")
        broken += [
            f"{index}: an empty text" for part in parts if part.get("part_kind") == "text" and not part["content"]
        ]
        if not parts:
            broken.append(f"{index}: no parts")
    return broken + _paired(exchanges, in_one=True, may_be_open=may_be_open)


def _llamaindex(messages: list[Any], *, may_be_open: bool) -> list[str]:
    from llama_index.core.llms import ChatMessage

    broken = _broken_types(TypeAdapter(list[ChatMessage]), messages)
    exchanges = list[Exchange]()
    for index, message in enumerate(messages):
        blocks, more = as_list(message.get("blocks")), message.get("additional_kwargs") or {}
        calls = [block for block in blocks if block.get("block_type") == "tool_call"]
        # Its OpenAI client takes both from there (llama-index-llms-openai `to_openai_message_dict`).
        answers = ids_of([more], "tool_call_id") if message.get("role") == "tool" else []
        if message.get("role") == "tool" and not answers:
            broken.append(f"{index}: a result without tool_call_id")
        if calls and message.get("role") != "assistant":
            broken.append(f"{index}: calls of a {message.get('role')}")
        exchanges.append((str(index), [str(call.get("tool_call_id")) for call in calls], answers))
        if not blocks:
            broken.append(f"{index}: a message of nothing")
    return broken + _paired(exchanges, may_be_open=may_be_open)


def _agent_framework(messages: list[Any], *, may_be_open: bool) -> list[str]:
    from agent_framework import Message

    broken, exchanges = list[str](), list[Exchange]()
    for index, message in enumerate(messages):
        try:
            Message.from_dict(message)
        except Exception as error:  # noqa: BLE001 -- whatever the framework's own reader says
            broken.append(f"type: {index}: {error!r}")
        role, contents = message.get("role"), as_list(message.get("contents"))
        if role not in {"system", "user", "assistant", "tool"}:
            broken.append(f"{index}: role {role!r}")
        calls = [content for content in contents if content.get("type") == "function_call"]
        answers = [content for content in contents if content.get("type") == "function_result"]
        if (calls and role != "assistant") or (answers and role != "tool"):
            broken.append(f"{index}: calls or results of a {role}")
        # Its OpenAI client makes a message of each, so calls of one answer are in one (findings on forms, A).
        exchanges.append((str(index), ids_of(calls, "call_id"), ids_of(answers, "call_id")))
        if not contents:
            broken.append(f"{index}: a message of nothing")
    return broken + _paired(exchanges, in_one=True, may_be_open=may_be_open)


def _strands(messages: list[Any], *, may_be_open: bool) -> list[str]:
    broken, exchanges = list[str](), list[Exchange]()
    for index, stored in enumerate(messages):
        message: Json = stored.get("message", stored)
        role, content = message.get("role"), as_list(message.get("content"))
        kinds = [next(iter(block), "") for block in content]
        if role not in {"user", "assistant"} or not content:
            broken.append(f"{index}: role {role!r}, {len(content)} blocks")
        # "The text field in the ContentBlock object … is blank" (Bedrock; ad4m#996).
        broken += [f"{index}: a blank text" for block in content if "text" in block and not block["text"].strip()]
        # strands `_fix_broken_tool_use` looks for results in the very next message only, answers what is missing there,
        # and drops the real one where it stands elsewhere.
        if "toolResult" in kinds[kinds.count("toolResult") :]:
            broken.append(f"{index}: something before a toolResult")
        if "toolUse" in kinds and set(kinds[kinds.index("toolUse") :]) != {"toolUse"}:
            broken.append(f"{index}: something behind a toolUse")
        uses = ids_of((block["toolUse"] for block in content if "toolUse" in block), "toolUseId")
        results = ids_of((block["toolResult"] for block in content if "toolResult" in block), "toolUseId")
        exchanges.append((str(index), uses, results))
    # "Maximum length of 64. Pattern: ^[a-zA-Z0-9_-]+$" (Bedrock, API_runtime_ToolResultBlock).
    return broken + _paired(exchanges, r"[a-zA-Z0-9_-]{1,64}", in_one=True, may_be_open=may_be_open)


def _adk(messages: list[Any], *, may_be_open: bool) -> list[str]:
    broken, exchanges = list[str](), list[Exchange]()
    for index, event in enumerate(messages):
        content: Json = event.get("content") or {}
        parts = as_list(content.get("parts"))
        calls = [_either(part, "functionCall", "function_call") for part in parts]
        answers = [_either(part, "functionResponse", "function_response") for part in parts]
        # ADK pairs by id (google-adk `_rearranger.py`), and merges responses only of one step into one event.
        if any(call and not call.get("id") for call in [*calls, *answers]):
            broken.append(f"{index}: a call or response without id")
        if any(answers) and not all(answers):
            broken.append(f"{index}: responses beside something else")
        if not event.get("author") or not parts:
            broken.append(f"{index}: no author or no parts")
        exchanges.append((str(index), ids_of(filter(None, calls), "id"), ids_of(filter(None, answers), "id")))
    return broken + _paired(exchanges, in_one=True, may_be_open=may_be_open)


def _either(part: Json, *names: str) -> Json | None:
    return next((part[name] for name in names if part.get(name)), None)


def _paired(exchanges: list[Exchange], ids: str = r"(?s).+", *, in_one: bool = False, may_be_open: bool) -> list[str]:
    """Calls have ids of their own, and their results directly behind them; `in_one`: all in one message."""
    broken = broken_ids([name for _, calls, _ in exchanges for name in calls], ids)
    return broken + broken_pairs(exchanges, in_one=in_one, may_be_open=may_be_open)


def _broken_types(adapter: TypeAdapter[Any], messages: list[Any]) -> list[str]:
    read: Callable[[str], Any] = adapter.validate_json
    try:
        read(json.dumps(messages))
    except ValueError as error:
        return [f"type: {error}"]
    return []


RULES: Final[dict[str, Rules]] = {
    "langchain": _langchain,
    "pydantic-ai": _pydantic_ai,
    "strands": _strands,
    "adk": _adk,
    "llamaindex": _llamaindex,
    "agent-framework": _agent_framework,
}
