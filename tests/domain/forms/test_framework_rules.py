"""The rules of the frameworks: they take what the frameworks' own classes write, and refuse what providers refused of it."""

from typing import Any

import pytest
from tests.domain.forms.rules_of_frameworks import RULES

Json = dict[str, Any]


def langchain() -> dict[str, list[Json]]:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_to_dict

    calls = [{"name": "weather", "args": {"city": "Oslo"}, "id": name, "type": "tool_call"} for name in "ab"]
    question, answer = HumanMessage("hi"), AIMessage("", tool_calls=calls)
    results = [ToolMessage("rain", tool_call_id=name) for name in "ba"]
    return {
        "right": messages_to_dict([question, answer, *results, AIMessage("rain")]),
        "no result": messages_to_dict([answer, results[0], question, results[1]]),
        "answers no call": messages_to_dict([question, results[0]]),
        "2 times": messages_to_dict([answer, *results, answer, *results]),
        "type": [{"type": "ai", "data": {"content": 4}}],
    }


def pydantic_ai() -> dict[str, list[Json]]:
    from pydantic_ai import messages as pai

    def dumped(*messages: pai.ModelMessage) -> list[Json]:
        values: list[Json] = pai.ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        return values

    prompt = pai.UserPromptPart("hi")
    answer = pai.ModelResponse([pai.ToolCallPart("weather", {"city": "Oslo"}, name) for name in "ab"])
    returns = [pai.ToolReturnPart("weather", "rain", name) for name in "ab"]
    return {
        "right": dumped(pai.ModelRequest([prompt]), answer, pai.ModelRequest([*returns, prompt])),
        "no result": dumped(answer, pai.ModelRequest(returns[:1]), pai.ModelRequest(returns[1:])),
        "a prompt before": dumped(answer, pai.ModelRequest([prompt, *returns])),
        "another tool": dumped(answer, pai.ModelRequest([returns[0], pai.ToolReturnPart("b", "rain", "b")])),
        "empty text": dumped(pai.ModelResponse([pai.TextPart("")])),
        "type": [{"kind": "response", "parts": [{"part_kind": "tool-return"}]}],
    }


def llamaindex() -> dict[str, list[Json]]:
    from llama_index.core.base.llms.types import ToolCallBlock
    from llama_index.core.llms import ChatMessage

    def result(name: str | None) -> Json:
        more = {"tool_call_id": name, "name": "weather"} if name else {}
        return ChatMessage(role="tool", content="rain", additional_kwargs=more).model_dump(mode="json")

    calls = [ToolCallBlock(tool_call_id=name, tool_name="weather", tool_kwargs={"city": "Oslo"}) for name in "ab"]
    answer = ChatMessage(role="assistant", blocks=[*calls]).model_dump(mode="json")
    question = ChatMessage(role="user", content="hi").model_dump(mode="json")
    return {
        "right": [question, answer, result("b"), result("a")],
        "no result": [answer, question, result("a"), result("b")],
        "without tool_call_id": [answer, result(None), result("a"), result("b")],
        "calls of a user": [answer | {"role": "user"}, result("a"), result("b")],
        "type": [{"role": "critic", "blocks": []}],
    }


def agent_framework() -> dict[str, list[Json]]:
    from agent_framework import Content, Message

    calls = [Content.from_function_call(name, "weather", arguments={"city": "Oslo"}) for name in "ab"]
    results = [Content.from_function_result(name, result="rain") for name in "ab"]
    question, answer, back = Message("user", ["hi"]), Message("assistant", [*calls]), Message("tool", [*results])
    apart = [Message("assistant", [call]) for call in calls]
    return {
        "right": [message.to_dict() for message in (question, answer, back)],
        "no result": [message.to_dict() for message in (question, *apart, back)],
        "answers no call": [message.to_dict() for message in (question, back)],
        "results of a user": [message.to_dict() for message in (answer, Message("user", [*results]))],
    }


def strands() -> dict[str, list[Json]]:
    def message(role: str, *blocks: Json) -> Json:
        return {"message": {"role": role, "content": list(blocks)}, "message_id": 0}

    uses = [{"toolUse": {"toolUseId": name, "name": "weather", "input": {}}} for name in "ab"]
    results = [{"toolResult": {"toolUseId": name, "status": "success", "content": [{"text": "x"}]}} for name in "ab"]
    foreign = {"toolUse": {"toolUseId": "functions.Bash:0", "name": "weather", "input": {}}}
    question, answer = message("user", {"text": "hi"}), message("assistant", {"text": "so"}, *uses)
    return {
        "right": [question, answer, message("user", *results, {"text": "and?"})],
        "no result": [question, answer, question, message("user", *results)],
        "before a toolResult": [answer, message("user", {"text": "so"}, *results)],
        "behind a toolUse": [message("assistant", *uses, {"text": "so"}), message("user", *results)],
        "blank": [message("user", {"text": " "})],
        "id 'functions.Bash:0'": [message("assistant", foreign)],
        "role": [message("tool", *results)],
    }


def adk() -> dict[str, list[Json]]:
    def event(author: str, *parts: Json) -> Json:
        return {"author": author, "content": {"role": "user" if author == "user" else "model", "parts": list(parts)}}

    calls = [{"functionCall": {"id": name, "name": "weather", "args": {}}} for name in "ab"]
    results = [{"functionResponse": {"id": name, "name": "weather", "response": {"output": "x"}}} for name in "ab"]
    question = event("user", {"text": "hi"})
    return {
        "right": [question, event("agent", *calls), event("agent", *results), event("agent", {"text": "rain"})],
        "no result": [question, event("agent", *calls), event("agent", results[0]), event("agent", results[1])],
        "without id": [event("agent", {"functionCall": {"name": "weather", "args": {}}})],
        "beside": [event("agent", *calls), event("agent", *results, {"text": "so"})],
        "no author": [event("", {"text": "hi"})],
    }


EXAMPLES = {
    "langchain": langchain,
    "pydantic-ai": pydantic_ai,
    "strands": strands,
    "adk": adk,
    "llamaindex": llamaindex,
    "agent-framework": agent_framework,
}


@pytest.mark.parametrize("form", RULES)
def test_what_a_framework_writes_keeps_the_rules(form: str) -> None:
    assert [] == RULES[form](EXAMPLES[form]()["right"], may_be_open=False)


@pytest.mark.parametrize("form", RULES)
def test_what_providers_refused_breaks_a_rule(form: str) -> None:
    for word, messages in EXAMPLES[form]().items():
        broken = RULES[form](messages, may_be_open=False)
        assert word == "right" or any(word in fault for fault in broken), (word, broken)


@pytest.mark.parametrize("form", RULES)
def test_calls_that_still_run_may_be_open(form: str) -> None:
    call = next(index for index, message in enumerate(EXAMPLES[form]()["right"]) if _has_calls(message))
    messages = EXAMPLES[form]()["right"][: call + 1]

    assert [] != RULES[form](messages, may_be_open=False)
    assert [] == RULES[form](messages, may_be_open=True)


def _has_calls(message: Json) -> bool:
    return any(word in str(message) for word in ("'weather'", '"weather"'))
