"""
Conversations that are a list of messages without ids: ids are made of what they say, so that importing again changes nothing.

Lists of messages as the APIs of OpenAI, Anthropic and others take them, and as files for fine-tuning have them:

    [{"role": "user", "content": "Plan a weekend in Riga"}, ...]            one conversation
    {"messages": [...]}                                                     the same, in a file of its own
    {"messages": [...]}                                                     JSONL: one conversation a line
    [{"messages": [...]}, ...]                                              a list of them
    {"role": "user", "content": "Plan a weekend in Riga"}                   JSONL: one message a line, one conversation

Messages may be chat messages or items of OpenAI, Anthropic's with blocks, Gemini's, or UIMessages; each is told by its own shape, and
kept as it is. Anthropic's `system` becomes the first message.

ShareGPT files: a list, or JSONL, of `{"id": ..., "conversations": [{"from": "human", "value": "..."}, ...]}`. `human` and `user` are
`user`; `gpt` and the names of other models are `assistant`; `observation` and `function_response` are `tool`, and what a
`function_call` says is from the assistant. Any other `from` stays as it is. `system` beside the turns, as LLaMA-Factory has it, is the
first message.

Whatever else a record says (tools, a model) is kept in the metadata, under `record`.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from chatledger.domain.chat.import_tree import Located, LostMessage, Reporter, branch_leaves, link_messages
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.context.messages import ui_message
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.detect import form_of
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import name_of
from chatledger.domain.values import UI

from .documents import ImportedDocument, read_documents

_TITLE_CHARACTERS: Final = 60
_ID_BYTES: Final = 12
_SHOWN: Final = 5
_LISTS: Final = ("messages", "conversations", "contents", "items")
_ROLES: Final = {
    "human": "user",
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "claude", "model", "bot", "function_call"), "assistant"),
    **dict.fromkeys(("observation", "function_response"), "tool"),
}
"""The roles of those who speak in ShareGPT files."""


class Dialect(NamedTuple):
    """
    The messages of a format.

    Args:
        source: The name of the format.
        keys: The keys that a message has, one of them at least; a record with one of them is a message, not a conversation.
        convert: Gives name, data and form for a message and its new id; raises `InvalidValueError` with what is wrong with it.
        system: The keys of the role and the text of a message that says what the system prompt beside the others does.
    """

    source: str
    keys: tuple[str, ...]
    convert: Callable[[Any, str], tuple[str, Any, str]]
    system: tuple[str, str]


def _message(message: Any, _message_id: str) -> tuple[str, Any, str]:
    form = form_of(message)
    if form is None:
        msg = "it is no message of an API that is known; one has a role, and content or parts"
        raise InvalidValueError(msg)
    return name_of(message, form), message, form


def _turn(turn: Any, message_id: str) -> tuple[str, Any, str]:
    fields = object_at(turn)
    speaker, text = fields.get("from"), fields.get("value")
    if not isinstance(speaker, str) or not isinstance(text, str):
        msg = "it has no text under 'from' and 'value'"
        raise InvalidValueError(msg)
    name = _ROLES.get(speaker, speaker)
    return name, ui_message(name, text, message_id), UI


MESSAGES: Final = Dialect("messages", ("role", "type"), _message, ("role", "content"))
SHAREGPT: Final = Dialect("sharegpt", ("from",), _turn, ("from", "value"))


def read_linear(path: Path, report: Reporter, *, dialect: Dialect) -> Iterator[ImportedChat]:
    """The conversations of a file, in its order. Messages that stand in no list, one a line or in one list, are one conversation."""
    loose: list[Any] = []
    for document in read_documents(path, report):
        value, fields = document.value, document.fields
        key = next((key for key in _LISTS if isinstance(fields.get(key), list)), None)
        if key is None and any(key in fields for key in dialect.keys):
            loose.append(value)
            continue
        messages, record = value, {}
        if key is not None:
            messages = fields[key]
            record = {name: item for name, item in fields.items() if name not in {key, "system"}}
            if fields.get("system"):
                messages = [dict(zip(dialect.system, ("system", fields["system"]), strict=True)), *messages]
        if not isinstance(messages, list):
            document.report.broken(f"conversation {document.number} has no list of messages; skipped")
            continue
        yield from _make_chats(dialect, document, cast("list[Any]", messages), {"record": record} if record else {})
    if loose:
        yield from _make_chats(dialect, ImportedDocument(loose, 1, None, report), loose, {})


def _make_chats(
    dialect: Dialect, document: ImportedDocument, values: Sequence[Any], metadata: dict[str, Any]
) -> Iterator[ImportedChat]:
    """
    Yield a conversation with all its messages on `main`; nothing where there is none, which is reported.

    The id of the chat is a digest of the whole record, so that of two conversations which begin alike neither is taken for the
    other. The id of a message is a digest of it, of the chat and of the messages before it.
    """
    what, report = f"conversation {document.number}", document.report
    try:
        chat_id = f"{dialect.source}-{_digest(document.value)}"
    except (ValueError, OverflowError, RecursionError):
        report.broken(f"{what} holds a value that is nested too deeply; skipped")
        return
    records: list[Located] = []
    numbers_by_fault: dict[str, list[int]] = {}
    parent_id: str | None = None
    for number, message in enumerate(values, 1):
        message_id = _digest([chat_id, parent_id, message])
        record: ImportedMessage | LostMessage
        try:
            name, data, form = dialect.convert(message, message_id)
            record = ImportedMessage(id=message_id, parent_id=parent_id, name=name, data=data, form=form)
        except InvalidValueError as error:
            # A file of another kind breaks the same rule in each message: said once, with the numbers.
            numbers_by_fault.setdefault(str(error), []).append(number)
            record = LostMessage(message_id, parent_id)
        records.append((record, None))
        parent_id = message_id
    is_readable = len(records) > sum(map(len, numbers_by_fault.values()))
    for fault, numbers in numbers_by_fault.items():
        shown = ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")
        if is_readable:
            report.broken(f"message{'s' if len(numbers) > 1 else ''} {shown} of {what}: {fault}; skipped")
    messages = link_messages(chat_id, records, report=report).messages if is_readable else ()
    if not messages:
        why = "".join(f": {fault}" for fault in islice(numbers_by_fault, 1))
        report.broken(f"{what} has no message that can be read{why}; skipped")
        return
    first = next((message for message in messages if message.name == "user"), messages[0])
    yield ImportedChat(
        id=chat_id,
        user_id=dialect.source,
        title=" ".join(first.text.split())[:_TITLE_CHARACTERS] or None,
        metadata={"source": dialect.source, **metadata},
        messages=messages,
        branches=branch_leaves(messages, main_head=messages[-1].id),
    )


def _digest(value: Any) -> str:
    text = msgspec.json.encode(value, order="sorted")
    return blake2b(text, digest_size=_ID_BYTES).hexdigest()
