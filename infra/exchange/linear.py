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

Files for tuning and for research: Gemini's `systemInstruction` and `contents`; a question and its answer (`PAIRS`); LMSYS's and
WildChat's `conversation`, with what they say of each message. Prompts of Google AI Studio: what stands in one turn of
`chunkedPrompt.chunks` is one message of Gemini's form, thoughts among its parts.

Pairs for preference tuning (TRL's, OpenAI's, LLaMA-Factory's, Anthropic's): what both answers share, then the chosen one on `main` and
the rejected one on `main-v2`, each with the annotation `{"preference": ...}`, and `score` where the record has one.

Whatever else a record says (tools, a model) is kept in the metadata, under `record`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from chatledger.domain.chat.import_tree import (
    LinkedMessages,
    Located,
    LostMessage,
    Reporter,
    branch_leaves,
    link_messages,
)
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.context.messages import ui_message
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.detect import form_of
from chatledger.domain.forms.plain import list_at, object_at, text_at
from chatledger.domain.forms.reading import name_of
from chatledger.domain.values import UI, Annotation

from .documents import ImportedDocument, read_documents
from .source import time_of_iso

_TITLE_CHARACTERS: Final = 60
_ID_BYTES: Final = 12
_SHOWN: Final = 5
_LISTS: Final = ("messages", "conversations", "conversation", "contents", "items")
PAIRS: Final = (
    ("prompt", "completion"),
    ("text_input", "output"),
    ("input_text", "output_text"),
    ("instruction", "output"),
)
"""The keys of a question and its answer, where a record is one exchange: OpenAI's and TRL's, Gemini's, Vertex AI's, and Alpaca's."""
_ANSWERS: Final = (("chosen", "rejected"), ("preferred_output", "non_preferred_output"))
_QUESTIONS: Final = ("prompt", "question", "instruction", "conversations", "messages")
_HUMAN: Final = re.compile(r"\n\n(Human|Assistant): ?")
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
        keys: The keys that a message has, one of them at least; a record with one of them is a message, not a conversation.
        convert: Gives name, data and form for a message and its new id; raises `InvalidValueError` with what is wrong with it.
        system: The keys of the role and the text of a message that says what the system prompt beside the others does.
        unpack: Gives a record with its messages under one of the usual keys.
        about: Gives what is said beside a message, as fields of an `ImportedMessage`.
        head: Gives title and times of a record, as fields of an `ImportedChat`.
    """

    source: str
    keys: tuple[str, ...]
    convert: Callable[[Any, str], tuple[str, Any, str]]
    system: tuple[str, str]
    unpack: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    about: Callable[[Any], dict[str, Any]] = lambda _: {}
    head: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {}


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


def _tuning_record(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record of a file for tuning with `system` and `messages`, whatever it calls them."""
    instruction = fields.get("systemInstruction") or fields.get("system_instruction")
    if instruction:
        texts = [text_at(object_at(part), "text") or "" for part in list_at(object_at(instruction), "parts")]
        text = "\n".join(texts) or text_at(object_at(instruction), "text") or instruction
        rest = {key: value for key, value in fields.items() if key not in {"systemInstruction", "system_instruction"}}
        fields = {**rest, "system": text} if isinstance(text, str) else fields
    for question, answer in PAIRS:
        if question in fields and answer in fields and not any(isinstance(fields.get(key), list) for key in _LISTS):
            questions = _as_messages("user", fields[question])
            if question == "instruction" and fields.get("input"):  # what Alpaca's instruction is about
                questions = [{"role": "user", "content": f"{fields[question]}\n\n{fields['input']}"}]
            rest = {key: value for key, value in fields.items() if key not in {question, answer, "input"}}
            return {**rest, "messages": [*questions, *_as_messages("assistant", fields[answer])]}
    return fields


def _as_messages(role: str, value: Any) -> list[Any]:
    """Return messages: of a text, which begins a dialogue where it says who speaks, or as they are."""
    if not isinstance(value, str):
        return cast("list[Any]", value) if isinstance(value, list) else [value]
    pieces = _HUMAN.split(value) if value.startswith(("\n\nHuman:", "\n\nAssistant:")) else []
    speakers = {"Human": "user", "Assistant": "assistant"}
    turns = [
        {"role": speakers[speaker], "content": text.strip()}
        for speaker, text in zip(pieces[1::2], pieces[2::2], strict=True)
        if text.strip()
    ]
    return turns or [{"role": role, "content": value}]


def _studio_record(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a prompt of Google AI Studio as Gemini takes it; its chunks are the parts of turns."""
    chunks = [object_at(chunk) for chunk in list_at(object_at(fields, "chunkedPrompt"), "chunks")]
    contents: list[dict[str, Any]] = []
    for role, group in groupby(chunks, lambda chunk: chunk.get("role")):
        turn = [*group]
        parts = [part for chunk in turn for part in _studio_parts(chunk)]
        about = {key: chunk[key] for chunk in turn for key in _CHUNK_NOTES if chunk.get(key) is not None}
        contents += [{"role": role, "parts": parts, _ABOUT: about}] if parts else []
    rest = {key: value for key, value in fields.items() if key not in {"chunkedPrompt", "pendingInputs"}}
    return _tuning_record({**rest, "contents": contents})


_ABOUT: Final = "about"
_CHUNK_NOTES: Final = ("tokenCount", "finishReason", "errorMessage", "isEdited", "branchParent", "createTime")


def _studio_message(message: Any, message_id: str) -> tuple[str, Any, str]:
    # What stands beside the parts is no field of Gemini's, which refuses others.
    return _message({key: value for key, value in object_at(message).items() if key != _ABOUT}, message_id)


def _studio_about(message: Any) -> dict[str, Any]:
    notes = dict(object_at(message, _ABOUT))
    created_at = _studio_time(notes.pop("createTime", None))
    return {"notes": notes or None, "created_at": created_at}


def _studio_head(fields: Mapping[str, Any]) -> dict[str, Any]:
    title = text_at(fields, "title") or text_at(fields, "displayName")
    times = {"created_at": _studio_time(fields.get("createTime")), "updated_at": _studio_time(fields.get("updateTime"))}
    return times | ({"title": title} if title else {})


def _studio_time(value: Any) -> int | None:
    try:
        return time_of_iso(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _studio_parts(chunk: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    thought = {"thought": True} if chunk.get("isThought") is True else {}
    signatures = [text for text in list_at(chunk, "thoughtSignatures") if isinstance(text, str)]
    signature = {"thoughtSignature": signatures[0]} if len(signatures) == 1 else {}
    # Where a chunk has both, its parts are the text in pieces.
    texts = (
        [text_at(chunk, "text")]
        if chunk.get("text")
        else [text_at(object_at(part), "text") for part in list_at(chunk, "parts")]
    )
    yield from ({"text": text, **thought, **signature} for text in texts if text)
    yield from ({key: chunk[key]} for key in ("executableCode", "codeExecutionResult") if key in chunk)
    for key in ("inlineData", "inlineFile", "inlineImage"):
        if "data" in (file := object_at(chunk, key)):
            yield {"inlineData": {"mimeType": file.get("mimeType") or "application/octet-stream", "data": file["data"]}}
    # Files on Google Drive, which only its user can open, and the pages that an answer was grounded on.
    yield from ({key: chunk[key]} for key in chunk if key.startswith("drive") or key in {"youtubeVideo", "grounding"})


MESSAGES: Final = Dialect("messages", ("role", "type"), _message, ("role", "content"), _tuning_record)
SHAREGPT: Final = Dialect("sharegpt", ("from",), _turn, ("from", "value"))
AISTUDIO: Final = Dialect(
    "aistudio", (), _studio_message, ("role", "content"), _studio_record, _studio_about, _studio_head
)


def _any_turn(value: Any, message_id: str) -> tuple[str, Any, str]:
    return _turn(value, message_id) if "from" in object_at(value) else _message(value, message_id)


_PREFERENCES: Final = Dialect("dpo", (), _any_turn, ("role", "content"))


def read_linear(path: Path, report: Reporter, *, dialect: Dialect) -> Iterator[ImportedChat]:
    """The conversations of a file, in its order. Messages that stand in no list, one a line or in one list, are one conversation."""
    loose: list[Any] = []
    for document in read_documents(path, report):
        fields = dialect.unpack(document.fields)
        key = next((key for key in _LISTS if isinstance(fields.get(key), list)), None)
        if key is None and any(key in fields for key in dialect.keys):
            loose.append(document.value)
            continue
        messages, record = document.value, {}
        if key is not None:
            messages = fields[key]
            record = {name: item for name, item in fields.items() if name not in {key, "system"}}
            if fields.get("system"):
                messages = [dict(zip(dialect.system, ("system", fields["system"]), strict=True)), *messages]
        if not isinstance(messages, list):
            document.report.broken(f"conversation {document.number} has no list of messages; skipped")
            continue
        yield from _make_chats(dialect, document, [cast("list[Any]", messages)], record)
    if loose:
        yield from _make_chats(dialect, ImportedDocument(loose, 1, None, report), [loose], {})


def read_preferences(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """Pairs of a chosen and a rejected answer: each a chat with two branches."""
    for document in read_documents(path, report):
        fields, what = document.fields, f"conversation {document.number}"
        names = next((names for names in _ANSWERS if names[0] in fields and names[1] in fields), None)
        if names is None:
            document.report.broken(f"{what} has no chosen and no rejected answer; skipped")
            continue
        chosen, rejected = (_as_messages("assistant", fields[name]) for name in names)
        asked_under = next((key for key in _QUESTIONS if fields.get(key)), None)
        question: list[Any] = []
        if isinstance(messages := object_at(fields, "input").get("messages"), list):
            asked_under, question = "input", cast("list[Any]", messages)
        elif asked_under is not None:
            question = _as_messages("user", fields[asked_under])
        shared = next((n for n, pair in enumerate(zip(chosen, rejected, strict=False)) if pair[0] != pair[1]), 0)
        if shared:  # both are whole dialogues, the question among them
            question, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
        if fields.get("system"):
            question = [{"role": "system", "content": fields["system"]}, *question]
        scores = [fields.get(f"score_{name}") for name in ("chosen", "rejected")]
        left_out = {*names, asked_under, "system", "score_chosen", "score_rejected"}
        record = {key: value for key, value in fields.items() if key not in left_out}
        labels = [
            {"preference": name} | ({} if score is None else {"score": score})
            for name, score in zip(("chosen", "rejected"), scores, strict=True)
        ]
        yield from _make_chats(_PREFERENCES, document, [[*question, *chosen], [*question, *rejected]], record, labels)


def _make_chats(
    dialect: Dialect,
    document: ImportedDocument,
    lines: Sequence[Sequence[Any]],
    rest: dict[str, Any],
    labels: Sequence[dict[str, Any]] = (),
) -> Iterator[ImportedChat]:
    """
    Yield a conversation with a branch for each of its lines of messages; nothing where there is none, which is reported.

    The id of the chat is a digest of the whole record, so that of two conversations which begin alike neither is taken for the
    other. The id of a message is a digest of it, of the chat and of the messages before it: lines that begin alike share messages.
    """
    what, report = f"conversation {document.number}", document.report
    try:
        chat_id = f"{dialect.source}-{_digest(document.value)}"
    except (ValueError, OverflowError, RecursionError):
        report.broken(f"{what} holds a value that is nested too deeply; skipped")
        return
    records, head, numbers_by_fault = _line_records(dialect, chat_id, lines, labels)
    is_readable = any(isinstance(record, ImportedMessage) for record, _ in records.values())
    for fault, numbers in numbers_by_fault.items():
        shown = ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")
        if is_readable:
            report.broken(f"message{'s' if len(numbers) > 1 else ''} {shown} of {what}: {fault}; skipped")
    linked = link_messages(chat_id, records.values(), report=report) if is_readable else LinkedMessages(())
    messages = linked.messages
    if not messages:
        why = "".join(f": {fault}" for fault in islice(numbers_by_fault, 1))
        report.broken(f"{what} has no message that can be read{why}; skipped")
        return
    first = next((message for message in messages if message.name == "user"), messages[0])
    head = None if head is None else linked.instead.get(head, head)
    chat = ImportedChat(
        id=chat_id,
        user_id=dialect.source,
        title=" ".join(first.text.split())[:_TITLE_CHARACTERS] or None,
        metadata={"source": dialect.source} | ({"record": rest} if rest else {}),
        messages=messages,
        branches=branch_leaves(messages, main_head=head),
    )
    yield msgspec.structs.replace(chat, **dialect.head(document.fields))


def _line_records(
    dialect: Dialect, chat_id: str, lines: Sequence[Sequence[Any]], labels: Sequence[dict[str, Any]]
) -> tuple[dict[str, Located], str | None, dict[str, list[int]]]:
    """Return the records by id, the id of the last one of the first line, and the numbers of those with a fault, by what it is."""
    records: dict[str, Located] = {}
    heads: list[str | None] = []
    numbers_by_fault: dict[str, list[int]] = {}
    for line, label in zip(lines, [*labels, *[None] * len(lines)], strict=False):
        parent_id: str | None = None
        for number, message in enumerate(line, 1):
            message_id = _digest([chat_id, parent_id, message])
            record: ImportedMessage | LostMessage
            try:
                name, data, form = dialect.convert(message, message_id)
                fields: dict[str, Any] = dialect.about(message)
                if label and number == len(line):
                    fields["annotation"] = Annotation(metadata=label)
                record = ImportedMessage(id=message_id, parent_id=parent_id, name=name, data=data, form=form, **fields)
            except InvalidValueError as error:
                # A file of another kind breaks the same rule in each message: said once, with the numbers.
                numbers_by_fault.setdefault(str(error), []).append(number)
                record = LostMessage(message_id, parent_id)
            records.setdefault(message_id, (record, None))
            parent_id = message_id
        heads.append(parent_id)
    return records, heads[0], numbers_by_fault


def _digest(value: Any) -> str:
    text = msgspec.json.encode(value, order="sorted")
    return blake2b(text, digest_size=_ID_BYTES).hexdigest()
