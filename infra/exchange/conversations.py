"""
Conversations in the forms that others train on and read: of OpenAI's and Anthropic's APIs, ShareGPT's, and Markdown.

Written are the chains that a model would get: hidden messages are left out, and in place of a replaced one stands its replacement. A
call that nobody answered is left out too, as a model that is trained on one learns to wait for nothing. What is written is read again
by `read_chats`, but for Markdown, which is for people.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Final, NamedTuple

from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedMessage
from chatledger.domain.forms.items import Call, File, Own, Reasoning, Result, Words
from chatledger.domain.forms.plain import list_at, object_at, parsed, text_at
from chatledger.domain.forms.reading import items_of, role_of
from chatledger.domain.forms.translate import translate
from chatledger.domain.forms.writing import arguments_of, result_text
from chatledger.domain.limits import check_choice


class ChainMessage(NamedTuple):
    """A message as translations take it."""

    id: str
    name: str
    form: str | None
    data: Any


class _Line(NamedTuple):
    chat: ImportedChat
    branch: ImportedBranch
    chain: list[ChainMessage]


def write_conversations(
    stream: IO[bytes], chats: Iterable[ImportedChat], form: str, *, all_branches: bool = False
) -> int:
    """
    Write conversations, one a line of JSON, or one after the other as Markdown; return how many there were.

    Args:
        stream: Where to, a file that is open in binary mode.
        chats: What `ledger.export_chat` returns, or `export_all` and `read_chats` yield.
        form: `openai` and `anthropic`: `{"messages": [...]}`, as files for fine-tuning are; `sharegpt`:
            `{"conversations": [{"from": ..., "value": ...}]}`; `markdown`.
        all_branches: Write a conversation for each branch, not only the active one; what they share is in each of them.

    Raises:
        InvalidValueError: There is no such form.
    """
    write = _WRITERS[check_choice(form, CONVERSATION_FORMATS, "form")]
    count = 0
    for chat in chats:
        for line in _lines(chat, all_branches=all_branches):
            value = write(line)
            if not isinstance(value, str) and not (value.get("messages") or value.get("conversations")):
                continue  # nothing of it has a place in this form: files alone, or data of an application
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) + "\n"
            stream.write(text.encode("utf-8", "replace"))
            count += 1
    return count


def _lines(chat: ImportedChat, *, all_branches: bool) -> Iterator[_Line]:
    """Yield the chains of a chat that hold anything."""
    by_id = {message.id: message for message in chat.messages}
    for branch in chat.branches:
        if branch.is_active or all_branches:
            chain: list[ImportedMessage] = []
            at = branch.head_message_id
            while at is not None and (message := by_id.get(at)) is not None:
                chain.append(message)
                at = message.parent_id
            on_chain = {message.id for message in chain}
            standing: dict[str, ChainMessage] = {}
            for message in chain:  # from the end: of several with one replacement, it stands in place of the last
                newest = _replacement(message, by_id)
                is_elsewhere = newest is not message and newest.id in on_chain
                if not (is_elsewhere or newest.id in standing or (newest.annotation and newest.annotation.hidden)):
                    standing[newest.id] = ChainMessage(newest.id, newest.name, newest.form or None, newest.data)
            if standing:
                yield _Line(chat, branch, [*reversed(standing.values())])


def _replacement(message: ImportedMessage, by_id: Mapping[str, ImportedMessage]) -> ImportedMessage:
    newest, seen = message, {message.id}
    while newest.annotation is not None and newest.annotation.replaced_by in by_id:
        newest = by_id[str(newest.annotation.replaced_by)]
        if newest.id in seen:  # a circle: each stays where it is
            return message
        seen.add(newest.id)
    return newest


def _openai(line: _Line) -> dict[str, Any]:
    return {"messages": translate(line.chain, "openai", open_calls="drop").messages}


def _anthropic(line: _Line) -> dict[str, Any]:
    # The API has no system messages but takes the prompt beside the others; later ones it would get as what the user said.
    rest = [message for message in line.chain if role_of(message.form, message.data, message.name) not in _INSTRUCTIONS]
    system = "\n\n".join(_text_of(message) for message in line.chain if message not in rest)
    return ({"system": system} if system else {}) | {
        "messages": translate(rest, "anthropic", open_calls="drop").messages
    }


_INSTRUCTIONS: Final = ("system", "developer")
_SPEAKERS: Final = {"user": "human", "assistant": "gpt", "developer": "system"}


def _text_of(message: ChainMessage) -> str:
    items = items_of(message.form, message.data, message.name, message)
    return "\n".join(item.what.text for item in items if isinstance(item.what, Words))


def _sharegpt(line: _Line) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for message in _openai(line)["messages"]:
        role, content = message["role"], message.get("content")
        blocks = map(object_at, list_at(message, "content"))
        text = content if isinstance(content, str) else "\n".join(text_at(block, "text") or "" for block in blocks)
        if text:
            turns.append({"from": "observation" if role == "tool" else _SPEAKERS.get(role, role), "value": text})
        for call in list_at(message, "tool_calls"):
            function = object_at(call, "function")
            value = {"name": function["name"], "arguments": parsed(function["arguments"])[0]}
            turns.append({"from": "function_call", "value": json.dumps(value, ensure_ascii=False)})
    return {"id": line.chat.id, "conversations": turns}


def _markdown(line: _Line) -> str:
    title = line.chat.title or line.chat.id
    pieces = [f"# {title if line.branch.is_active else f'{title} ({line.branch.name})'}"]
    for message in line.chain:
        pieces.append(f"## {role_of(message.form, message.data, message.name)}")
        for item in items_of(message.form, message.data, message.name, message):
            what = item.what
            if isinstance(what, Words):
                pieces.append(what.text)
            elif isinstance(what, Reasoning) and what.text:
                pieces.append("\n".join(f"> {text}" for text in what.text.splitlines()))
            elif isinstance(what, Call):
                pieces.append(_fenced("json", f"{what.name}({arguments_of(what)})"))
            elif isinstance(what, Result):
                pieces.append(_fenced("", result_text(what)))
            elif isinstance(what, File) and (what.url or what.name):
                pieces.append(f"[{what.name or what.media_type}]({what.url})" if what.url else f"({what.name})")
            elif isinstance(what, Own) and (url := text_at(block := object_at(what.block), "url")):
                pieces.append(f"[{text_at(block, 'title') or url}]({url})")
    return "\n\n".join(pieces) + "\n\n"


def _fenced(language: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


_WRITERS: Final[Mapping[str, Callable[[_Line], Any]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "sharegpt": _sharegpt,
    "markdown": _markdown,
}
CONVERSATION_FORMATS: Final = tuple(_WRITERS)
"""The forms that `write_conversations` writes."""
