"""
Rules that a list of messages keeps so that a provider, or a framework's own code, takes it.

Stated from the vendors' documents, the types of their SDKs and public threads, which each rule names; no reader or writer of
chatledger is imported, so that these rules and the writers are two opinions. Where a thread gives what an API answered, the rule
is what that answer says. No provider was called.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

Json = dict[str, Any]
Exchange = tuple[str, list[str], list[str]]
"""Where a message stands, the ids of the calls that it makes, and the ids of the calls that it answers."""

# openai and anthropic: "String should match pattern" (mcp-use#94, forgecode#1142); a name of more than 64 is refused by OpenAI.
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# "Must start with a letter or an underscore … dots (.) or dashes (-), with a maximum length of 64" (gemini-cli#6704).
GOOGLE_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
DUMMY_SIGNATURE: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""The Base64 of `skip_thought_signature_validator`, for calls that another model made (ai.google.dev, "Thought signatures")."""


class Rules(Protocol):
    """The rules of one form."""

    def __call__(self, messages: list[Any], /, *, may_be_open: bool) -> list[str]: ...


def broken_rules(form: str, messages: Sequence[Any], *, may_be_open: bool = False) -> list[str]:
    """
    The rules of `form` that `messages` break, in words; empty when they keep all.

    `may_be_open`: the calls of the last answer may still be without results, as while tools run.
    """
    return RULES[form](list(messages), may_be_open=may_be_open)


def _openai(messages: list[Any], *, may_be_open: bool) -> list[str]:
    broken = _broken_types("openai", messages)
    calls = [as_list(message.get("tool_calls")) for message in messages]
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        # The roles of ChatCompletionMessageParam; `function` is deprecated, and pairs by name.
        if role not in {"system", "developer", "user", "assistant", "tool"}:
            broken.append(f"{index}: role {role!r}")
        # "[] is too short - 'messages.1.tool_calls'" (openai-agents-python, `chatcmpl_converter.py`: "if not tool_calls").
        if message.get("tool_calls") == []:
            broken.append(f"{index}: tool_calls is empty")
        if calls[index] and role != "assistant":
            broken.append(f"{index}: calls of a {role}")
        # "Required unless `tool_calls` or `function_call` is specified" (ChatCompletionAssistantMessageParam); an empty array
        # is refused ("Expected an array with minimum length 1"), and so is a message of nothing by many compatible servers.
        if content == [] or (role != "tool" and not calls[index] and not message.get("refusal") and _is_blank(content)):
            broken.append(f"{index}: a message of nothing")
        # "Invalid 'messages[1].name': string does not match pattern" (extended_openai_conversation#251).
        if role != "tool" and "name" in message and not NAME.fullmatch(str(message["name"])):
            broken.append(f"{index}: name {message['name']!r}")
        broken += [f"{index}: a file of nothing" for part in _parts(content) if _is_empty_file(part)]
    ids = [call.get("id") for message_calls in calls for call in message_calls]
    # Maximum length 40: autogen#6377, agno#5382, pydantic-ai#4389; 64 with newer models (openclaw#875). Uniqueness:
    # results of two calls of one id cannot be told apart (Switchyard#502).
    broken += broken_ids(ids, r"(?s).{1,40}")
    names = [_object(call.get(str(call.get("type")))).get("name") for message in calls for call in message]
    broken += _broken_names(names, NAME)
    # "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'", and
    # "messages with role 'tool' must be a response to a preceding message with 'tool_calls'" (ogx#6367, openclaw).
    exchanges = [
        (str(index), [str(call.get("id")) for call in calls[index]], ids_of([message], "tool_call_id"))
        for index, message in enumerate(messages)
    ]
    return broken + broken_pairs(exchanges, may_be_open=may_be_open)


def _responses(items: list[Any], *, may_be_open: bool) -> list[str]:
    broken = _broken_types("responses", items)
    kinds = [str(item.get("type") or "message") for item in items]
    calls, answered = list[str](), list[str]()
    for index, (item, kind) in enumerate(zip(items, kinds, strict=True)):
        if kind == "message":
            broken += _broken_responses_message(index, item)
        # "Invalid 'input[66].id' … Expected an ID that begins with 'rs'" (cockpit-tools#2090), 'msg' (inspect_ai#1545), 'fc'
        # (continue#11785); letters, numbers, underscores and dashes, at most 64 (opencode#44587, billion-context#1052).
        prefix = {"reasoning": "rs", "message": "msg", "function_call": "fc"}.get(kind, "")
        if item.get("id") is not None and not re.fullmatch(prefix + r"[A-Za-z0-9_-]{0,64}", str(item["id"])[:65]):
            broken.append(f"{index}: id {item['id']!r} of a {kind}")
        if kind in {"function_call", "custom_tool_call"}:
            calls.append(str(item.get("call_id")))
        if kind in {"function_call_output", "custom_tool_call_output"}:
            # "No tool call found for function call output with call_id" (AgentTeams#299, cursor-byok#307); pairs go by
            # `call_id`, wherever they stand (awesome-deepseek-integration#740), but no output precedes its call.
            answers = str(item.get("call_id"))
            if answers not in calls or answers in answered:
                broken.append(f"{index}: output of {answers!r}, which is no call before it or has one")
            answered.append(answers)
        # "Item 'rs_…' of type 'reasoning' was provided without its required following item" (vercel/ai#7099, continue#11994):
        # what follows is of the same answer.
        if kind == "reasoning" and not _goes_on(items[index + 1 :]):
            broken.append(f"{index}: reasoning with nothing of the answer behind it")
    broken += broken_ids(calls, r"(?s).{1,64}")  # "string too long. Expected … maximum length 64" (Roo-Code#10763)
    broken += _broken_names([item.get("name") for item in items if item.get("type") == "function_call"], NAME)
    # "Duplicate item found with id msg_… Remove duplicate items from your input and try again" (openai-agents-python).
    repeated = [name for name, count in Counter(item["id"] for item in items if item.get("id")).items() if count > 1]
    broken += [f"items of one id {name!r}" for name in repeated]
    # "No tool output found for function call call_…" (req_llm#454).
    last = _last(kind.endswith("_call") for kind in kinds)
    question = _last(item.get("role") in {"user", "system", "developer"} for item in items[: last + 1])
    still_open = {item.get("call_id") for item in items[question + 1 :]} if may_be_open else set[Any]()
    return broken + [f"call {name!r} without output" for name in calls if name not in {*answered, *still_open}]


def _broken_responses_message(index: int, item: Json) -> list[str]:
    role, content = item.get("role"), item.get("content")
    broken = [f"{index}: a message of nothing"] if _is_blank(content) else []
    # "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'" (rust-genai#119, openhuman#3624); and
    # the other way round for who is not the assistant.
    allowed = (
        {"output_text", "refusal"}
        if role == "assistant"
        else {"input_text", "input_image", "input_file", "input_audio"}
    )
    broken += [
        f"{index}: {part.get('type')} of a {role}" for part in _parts(content) if part.get("type") not in allowed
    ]
    broken += [f"{index}: a file of nothing" for part in _parts(content) if _is_empty_file(part)]
    return broken


def _goes_on(items: list[Any]) -> bool:
    """Whether what follows a reasoning item is an item that a model made."""
    for item in items[:1]:
        kind = item.get("type") or "message"
        return kind == "reasoning" or kind.endswith("_call") or item.get("role") == "assistant"
    return False


def _anthropic(messages: list[Any], *, may_be_open: bool) -> list[str]:
    broken = _broken_types("anthropic", messages)
    blocks = [_blocks(message.get("content")) for message in messages]
    for index, message in enumerate(messages):
        role = message.get("role")
        # "all messages must have non-empty content except for the optional final assistant message" (litellm#2549).
        if not blocks[index]:
            broken.append(f"{index}: a message of nothing")
        # A `system` entry is taken only behind a user's turn (pydantic-ai `_message_passes.py`).
        if role == "system" and (index == 0 or messages[index - 1].get("role") == "assistant"):
            broken.append(f"{index}: system behind no user")
        for block in blocks[index]:
            broken += [f"{index}: {fault}" for fault in _broken_block(str(role), block)]
    # "A maximum of 4 blocks with cache_control may be provided. Found 5." (platform.claude.com "Prompt caching").
    marked = sum("cache_control" in block for content in blocks for block in content)
    broken += [f"{marked} blocks with cache_control"] if marked > 4 else []
    turns = _joined(messages, blocks, "user", "assistant")
    for where, role, turn in turns:
        kinds = [str(block.get("type")) for block in turn]
        first = kinds.index("tool_use") if "tool_use" in kinds else len(kinds)
        # The same request is taken with [text, tool_use] and refused with [tool_use, text] (mecatl#1465; litellm#22947; a
        # recorded 400 in opencode, "rejects malformed assistant tool order").
        if set(kinds[first:]) - {"tool_use"}:
            broken.append(f"{where}: {kinds[first:]} behind a tool_use")
        # "tool_result blocks must come first": "Did not find 1 `tool_result` block(s) at the beginning of this message"
        # (tester-mcp-client#12, hermes-agent#65369).
        results = kinds.count("tool_result")
        if role == "user" and "tool_result" in kinds[results:]:
            broken.append(f"{where}: something before a tool_result")
    broken += _broken_server_calls(turns)
    uses = [block for content in blocks for block in content if block.get("type") == "tool_use"]
    # `^[a-zA-Z0-9_-]+$` (bifrost#5097, langchain#37756); "`tool_use` ids must be unique" (cua#524).
    broken += broken_ids([block.get("id") for block in uses], r"[a-zA-Z0-9_-]+")
    broken += _broken_names([block.get("name") for block in uses], NAME)
    # "Each `tool_use` block must have a corresponding `tool_result` block in the next message" (claude-code#8210); "each
    # tool_use must have a single result" (picoclaw). Neighbouring assistant turns are combined (`message_create_params`);
    # that results may be spread over two messages is not said, and picoclaw was refused.
    exchanges = list[Exchange]()
    for where, role, turn in _joined(messages, blocks, "assistant"):
        calls = ids_of((block for block in turn if block.get("type") == "tool_use"), "id")
        answers = ids_of((block for block in turn if block.get("type") == "tool_result"), "tool_use_id")
        exchanges.append((f"{where} ({role})", calls, answers))
    return broken + broken_pairs(exchanges, in_one=True, may_be_open=may_be_open)


def _broken_block(role: str, block: Json) -> list[str]:
    kind = str(block.get("type"))
    broken = list[str]()
    # "text content blocks must be non-empty", "… must contain non-whitespace text" (anthropic-sdk-python#461).
    texts = [block, *_parts(block.get("content"))] if kind == "tool_result" else [block]
    broken += ["a blank text" for text in texts if text.get("type") == "text" and not str(text.get("text")).strip()]
    if kind == "tool_result" and block.get("content") == []:
        broken.append("a result of an empty list")
    # "all content must be type "text" if "is_error" is true" (vellum-assistant#18387).
    if kind == "tool_result" and block.get("is_error"):
        broken += ["a file in an error" for part in _parts(block.get("content")) if part.get("type") != "text"]
    # An empty or foreign signature is refused (pi#9048); ThinkingBlockParam: "exactly as returned by the API".
    if (kind == "thinking" and not block.get("signature")) or (kind == "redacted_thinking" and not block.get("data")):
        broken.append("thinking without its signature")
    of_user = kind in {"tool_result", "image", "document", "search_result", "container_upload"}
    of_model = kind in {"tool_use", "thinking", "redacted_thinking", "server_tool_use"} or (
        kind.endswith("_tool_result") and kind != "tool_result"
    )
    if (of_user and role != "user") or (of_model and role != "assistant"):
        broken.append(f"{kind} of {role}")
    return broken


def _broken_server_calls(turns: list[tuple[int, str, list[Json]]]) -> list[str]:
    """The calls of Anthropic's own tools that have no result in their turn, and results whose call is not before them."""
    broken, made, paused = list[str](), set[str](), set[str]()
    for where, _, turn in turns:
        has_client_calls = any(block.get("type") == "tool_use" for block in turn)
        here = set[str]()
        for block in turn:
            kind = str(block.get("type"))
            if kind == "server_tool_use":
                here.add(str(block.get("id")))
            elif kind.endswith("_tool_result"):
                # "Each `…_tool_result` block must have a corresponding `server_tool_use` block before it" (claude-code#64383).
                answers = str(block.get("tool_use_id"))
                if answers not in made | here:
                    broken.append(f"{where}: {kind} without its server_tool_use")
                here.discard(answers)
                paused.discard(answers)
        made |= {str(block.get("id")) for block in turn if block.get("type") == "server_tool_use"}
        # A turn that waits for results of the client goes on behind them (pydantic-ai `drop_unpaired_native_tool_calls`).
        paused |= here if has_client_calls else set[str]()
        broken += [f"{where}: server_tool_use {name!r} without result" for name in here if not has_client_calls]
    return broken


def _joined(messages: list[Any], blocks: list[list[Json]], *roles: str) -> list[tuple[int, str, list[Json]]]:
    """The turns as the API combines them, of `roles` only: where each begins, its role and its blocks."""
    turns = list[tuple[int, str, list[Json]]]()
    for index, message in enumerate(messages):
        role = str(message.get("role"))
        if turns and role in roles and turns[-1][1] == role:
            turns[-1][2].extend(blocks[index])
        else:
            turns.append((index, role, list(blocks[index])))
    return turns


def _google(messages: list[Any], *, may_be_open: bool) -> list[str]:
    try:
        contents = _validated("google", messages)
    except ValidationError as error:
        return _faults(error)
    broken = list[str]()
    calls = [[part.function_call for part in _of(content) if part.function_call] for content in contents]
    answers = [[part.function_response for part in _of(content) if part.function_response] for content in contents]
    still_open = _last(calls) if may_be_open else -1
    for index, content in enumerate(contents):
        # "Must be either 'user' or 'model'" (google-genai `types.Content`).
        if content.role not in {"user", "model"}:
            broken.append(f"{index}: role {content.role!r}")
        # "contents.parts must not be empty" (vercel/ai#3775).
        if not content.parts:
            broken.append(f"{index}: a content of nothing")
        broken += [f"{index}: {fault}" for part in _of(content) for fault in _broken_part(content.role, part)]
        if calls[index]:
            # "function call turn comes immediately after a user turn or after a function response turn" (gemini-cli#26486).
            if index == 0 or contents[index - 1].role != "user":
                broken.append(f"{index}: calls behind no user and no responses")
            # The first call of each step has a signature (ai.google.dev, "Thought signatures"; only the current turn is
            # validated, but each turn is the current one when its chain ends there).
            if not next(part for part in _of(content) if part.function_call).thought_signature:
                broken.append(f"{index}: the first call has no signature")
            if index != still_open and not (index + 1 < len(contents) and answers[index + 1]):
                broken.append(f"{index}: calls without responses behind them")
        if answers[index]:
            before = calls[index - 1] if index else []
            if index - 1 == still_open:
                before = [
                    call
                    for call in before
                    if any((call.id, call.name) == (back.id, back.name) for back in answers[index])
                ]
            broken += _broken_google_answers(index, content, before, answers[index])
    broken += broken_ids([call.id for content in calls for call in content if call.id], r"(?s).+")
    return broken + _broken_names([call.name for content in calls for call in content], GOOGLE_NAME)


def _broken_part(role: str | None, part: Any) -> list[str]:
    kinds = "text inline_data file_data function_call function_response executable_code code_execution_result tool_call"
    told = [kind for kind in [*kinds.split(), "tool_response"] if getattr(part, kind) is not None]
    broken = list[str]()
    # "Exactly one field within a Part should be set" (`types.Part`); "required oneof field 'data' must have one initialized
    # field", for an empty text too (CLIProxyAPI#1292). A signature may come in a part of an empty text, and goes back so.
    if len(told) != 1 or (part.text == "" and not part.thought_signature):
        broken.append(f"a part of {told or 'nothing'}" if part.text != "" else "a part of an empty text")
    if role != "model" and (part.function_call or part.thought or part.thought_signature):
        broken.append("what a model says, of a user")
    if role == "model" and part.function_response:
        broken.append("a response of the model")
    return broken


def _broken_google_answers(index: int, content: Any, calls: list[Any], answers: list[Any]) -> list[str]:
    broken = list[str]()
    # A content of responses has nothing else, or it is taken for the model's (pydantic-ai#4210, opencode#43479).
    if len(answers) != len(content.parts):
        broken.append(f"{index}: responses beside something else")
    # "the number of function response parts is equal to the number of function call parts" (gemini-cli#17208, #3814), and
    # "function response turn comes immediately after a function call turn" (generative-ai#368).
    if len(answers) != len(calls):
        broken.append(f"{index}: {len(answers)} responses to {len(calls)} calls")
    # "Matches FunctionDeclaration.name and FunctionCall.name" (`types.FunctionResponse`; gemini-cli#11814).
    if Counter(answer.name for answer in answers) != Counter(call.name for call in calls):
        broken.append(f"{index}: names of the responses are not those of the calls")
    # "the client to … return the response with the matching `id`" (`types.FunctionCall`).
    if Counter(answer.id for answer in answers) != Counter(call.id for call in calls):
        broken.append(f"{index}: ids of the responses are not those of the calls")
    # "Required. The function response in JSON object format."
    return broken + [f"{index}: a response of nothing" for answer in answers if answer.response is None]


def _ui(messages: list[Any], *, may_be_open: bool) -> list[str]:
    broken = _broken_types("ui", messages)
    broken += broken_ids([message.get("id") for message in messages], r"(?s).+")
    calls = list[Any]()
    still_open = _last(any("toolCallId" in part for part in as_list(message.get("parts"))) for message in messages)
    while still_open > 0 and messages[still_open - 1].get("role") == "assistant":  # which goes on with its turn
        still_open -= 1
    for index, message in enumerate(messages):
        role, parts = message.get("role"), as_list(message.get("parts"))
        # "Message must contain at least one part" (ai `validateUIMessages`).
        if not parts:
            broken.append(f"{index}: no parts")
        for part in parts:
            kind = str(part.get("type"))
            is_call = kind == "dynamic-tool" or kind.startswith("tool-")
            # ai `convertToModelMessages`: of a system message it takes texts, of a user's texts, files and data.
            if role == "system" and kind != "text":
                broken.append(f"{index}: {kind} of the system")
            if role == "user" and kind not in {"text", "file"} and not kind.startswith("data-"):
                broken.append(f"{index}: {kind} of a user")
            calls += [part.get("toolCallId")] if is_call else []
            # Of a call without result it makes none, and the next API refuses it (vercel/ai#7097, #7100).
            if is_call and str(part.get("state")).startswith("input-") and not (may_be_open and index >= still_open):
                broken.append(f"{index}: call {part.get('toolCallId')!r} without result")
            if kind == "file" and not str(part.get("url")):
                broken.append(f"{index}: a file of nothing")
    return broken + broken_ids(calls, r"(?s).+")


def broken_pairs(exchanges: list[Exchange], *, in_one: bool = False, may_be_open: bool = False) -> list[str]:
    """The calls without a result directly behind them, and results without such a call; `in_one`: all in one message."""
    broken, pending = list[str](), list[str]()
    still_open = _last(calls for _, calls, _ in exchanges) if may_be_open else -1
    for index, (where, calls, answers) in enumerate(exchanges):
        for name in answers:
            if name in pending:
                pending.remove(name)
            else:
                broken.append(f"{where}: result {name!r} answers no call before it")
        if pending and (calls or not answers or in_one):
            broken += (
                [f"{where}: calls {pending} have no result directly behind them"]
                if index <= still_open or not may_be_open
                else []
            )
            pending = []
        pending += calls
    return broken + ([f"calls {pending} have no result"] if pending and not may_be_open else [])


def _last(is_told: Iterable[Any]) -> int:
    """The place of the last value that is true, or not empty; -1 for none."""
    return max((index for index, value in enumerate(is_told) if value), default=-1)


def broken_ids(ids: Iterable[Any], pattern: str) -> list[str]:
    counted = Counter(ids)
    wrong = [f"id {name!r}" for name in counted if not isinstance(name, str) or not re.fullmatch(pattern, name)]
    return wrong + [f"id {name!r} {count} times" for name, count in counted.items() if count > 1]


def _broken_names(names: Iterable[Any], pattern: re.Pattern[str]) -> list[str]:
    return [f"name {name!r}" for name in names if not isinstance(name, str) or not pattern.fullmatch(name)]


@cache
def _validator(form: str) -> SchemaValidator:
    """Validates JSON by the SDK's own type of a list of messages; imported here, as the tests of one form need no other's."""
    messages: TypeAdapter[Any]
    if form == "openai":
        from openai.types.chat import ChatCompletionMessageParam

        messages = TypeAdapter(list[ChatCompletionMessageParam])
    elif form == "responses":
        from openai.types.responses import ResponseInputItemParam

        messages = TypeAdapter(list[ResponseInputItemParam])
    elif form == "anthropic":
        from anthropic.types import MessageParam

        messages = TypeAdapter(list[MessageParam])
    elif form == "google":
        from google.genai.types import Content

        messages = TypeAdapter(list[Content])
    else:
        from pydantic_ai.ui.vercel_ai.request_types import UIMessage

        messages = TypeAdapter(list[UIMessage])
    return SchemaValidator(_strict(messages.core_schema))


def _strict(schema: Any) -> Any:
    """
    The same schema, with a list for each `Iterable`, and unions that end with the first type that fits.

    Pydantic looks into an `Iterable` only when it is read, and takes a text for one; and it tries each type of a union, up to 33.
    """
    if isinstance(schema, dict):
        known = {key: _strict(value) for key, value in cast("Json", schema).items()}
        changed = {"generator": {"type": "list"}, "union": {"mode": "left_to_right"}}
        return known | changed.get(str(known.get("type")), {})
    if isinstance(schema, list | tuple):
        members = (_strict(member) for member in cast("Sequence[Any]", schema))
        return list(members) if isinstance(schema, list) else tuple(members)
    return schema


def _validated(form: str, messages: list[Any]) -> Any:
    return _validator(form).validate_json(json.dumps(messages))  # as the wire has it: bytes are Base64


def _faults(error: ValidationError) -> list[str]:
    return [f"type: {fault['loc']}: {fault['msg']}" for fault in error.errors(include_url=False)[:3]]


def _broken_types(form: str, messages: list[Any]) -> list[str]:
    try:
        _validated(form, messages)
    except ValidationError as error:
        return _faults(error)
    return []


def _is_blank(content: Any) -> bool:
    """Whether there is nothing in the content of a message: no text, or parts of empty texts."""
    if isinstance(content, str) or content is None:
        return not content
    return not any(part.get("text", part.get("refusal", "file")) for part in _parts(content))


def _is_empty_file(part: Json) -> bool:
    """Whether a part of a file says neither where it is nor what is in it (the SDK types have none of these required)."""
    kind = str(part.get("type"))
    if kind not in {"image_url", "file", "input_image", "input_file"}:
        return False
    told = _object(part.get(kind)) or part
    return not any(told.get(key) for key in ("url", "file_data", "file_id", "image_url", "file_url"))


def ids_of(values: Iterable[Any], key: str) -> list[str]:
    return [str(value[key]) for value in values if value.get(key) is not None]


def _blocks(content: Any) -> list[Json]:
    """Blocks of Anthropic; a text is one block ("shorthand for an array of one content block")."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return _parts(content)


def _parts(content: Any) -> list[Json]:
    return [part for part in as_list(content) if isinstance(part, dict)]


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, Mapping) else {}


def _of(content: Any) -> list[Any]:
    return content.parts or []


RULES: Final[dict[str, Rules]] = {
    "openai": _openai,
    "responses": _responses,
    "anthropic": _anthropic,
    "google": _google,
    "ui": _ui,
}
