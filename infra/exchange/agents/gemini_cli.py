"""Gemini CLI: a log of assignments for each session; a message is written again, under its id, when it changes."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from chatledger.domain.chat.lines import UNNAMED, TranscriptLine, values_in
from chatledger.domain.forms.gemini_cli import NAME, messages_in
from chatledger.domain.forms.google import MODEL
from chatledger.domain.forms.google import NAME as GOOGLE
from chatledger.domain.forms.items import ASSISTANT, USER
from chatledger.domain.forms.plain import last_line, list_at, object_at, text_at
from chatledger.domain.forms.reading import items_of, role_of
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Message

from .agent import Agent, NewSession, SessionFile, WrittenSession, prompt_title, time_of, time_text

_ID_CHARACTERS: Final = 8
"""The name of a file has so much of the id of its session."""
_MADE_FROM: Final = UUID("2b8d6a0e-7c1f-4c52-9a35-5d1f6a0c7e42")


def _line_of(value: Any, line_id: str) -> TranscriptLine:
    line = last_line(value)
    name = role_of(NAME, line, "") if items_of(NAME, line) else ""
    return TranscriptLine(
        value,
        text_at(line, "id") or line_id,
        name=name,
        created_at=time_of(text_at(line, "timestamp")),
        title=prompt_title(NAME, line) if name == USER else None,
        instead=text_at(line, "$rewindTo"),
    )


def _lines_in(message: Message) -> list[TranscriptLine]:
    return [_line_of(value, f"#{message.id}:{number}") for number, value in enumerate(values_in(message.data))]


def _settled(
    lines: Sequence[TranscriptLine], is_kept: Callable[[str], bool], *, is_ended: bool
) -> list[TranscriptLine]:
    """The last line under an id says what all of them say; one that sets all messages says something where they begin anew."""
    settled = list(lines)
    newest: int | None = None
    seen: set[str] = set()
    for number, line in enumerate(lines):
        if line.id.startswith(UNNAMED):
            first = next((message for message in messages_in(last_line(line.value)) if items_of(NAME, message)), None)
            first_id = text_at(object_at(first), "id")
            if first_id is not None and (first_id in seen or is_kept(first_id)):
                settled[number] = line._replace(name="", title=None)
            elif first_id is not None:  # under which later lists are known
                settled[number] = line._replace(id=first_id)
                seen.add(first_id)
            continue
        if newest is not None and settled[newest].id == line.id:
            settled[number] = settled[number]._replace(instead=settled[newest].instead)
            settled[newest] = settled[newest]._replace(name="", instead=None)
        elif line.name and (line.id in seen or is_kept(line.id)):
            settled[number] = line._replace(instead=line.id)
        newest = number
        seen.add(line.id)
    # Its calls may follow.
    if newest is not None and not is_ended and settled[newest].name == ASSISTANT:
        settled[newest] = settled[newest]._replace(name="")
    return settled


def _roots(environ: Mapping[str, str], home: Path) -> list[Path]:
    return [Path(environ.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"]


def _sessions(root: Path) -> Iterator[SessionFile]:
    for chats in sorted(root.glob("*/chats")):
        told: dict[str, str] = {}
        with contextlib.suppress(OSError, UnicodeError):
            told["cwd"] = (chats.parent / ".project_root").read_text(encoding="utf-8")
        main: dict[str, str] = {}
        for path in sorted(chats.glob("session-*.jsonl")):
            session = path.stem.removeprefix("session-")
            main[session[-_ID_CHARACTERS:]] = chat_id = f"{NAME}/{session}"
            yield SessionFile(path, chat_id, {"session": session, **told})
        for path in sorted(chats.glob("*/*.jsonl")):
            parent = main.get(path.parent.name[:_ID_CHARACTERS], f"{NAME}/{path.parent.name}")
            chat_id = f"{NAME}/{path.parent.name}/{path.stem}"
            yield SessionFile(path, chat_id, {"session": path.stem, "parent": parent, **told})


def _described(value: Any) -> dict[str, str]:
    line = last_line(value)
    told = {"session": text_at(line, "sessionId"), "model": text_at(line, "model")}
    return {key: text for key, text in told.items() if text}


def _call(part: Any, number: int, at: str) -> dict[str, Any]:
    called = object_at(part, "functionCall")
    name = called.get("name") or ""
    call: dict[str, Any] = {"id": called.get("id") or f"{name}-{number}", "name": name}
    call["args"] = dict(object_at(called, "args"))
    return call | {"status": "cancelled", "timestamp": at, "displayName": name, "description": ""}


def _answer(call: dict[str, Any], part: Any) -> None:
    response = {**object_at(part, "functionResponse"), "id": call["id"], "name": call["name"]}
    is_error = "error" in object_at(response, "response")
    call |= {"result": [{"functionResponse": response}], "status": "error" if is_error else "success"}


def _written(messages: Sequence[Message], session: NewSession) -> WrittenSession:
    translated = translate(messages, GOOGLE)
    begun = time_text(session.at.timestamp() * 1000)
    lines: list[dict[str, Any]] = [
        {"sessionId": session.id, "projectHash": "0" * 64, "startTime": begun, "lastUpdated": begun, "kind": "main"}
    ]
    open_calls: list[dict[str, Any]] = []
    for value, places in zip(translated.messages, translated.origins, strict=True):
        at, parts = time_text(messages[places[-1]].created_at), list_at(value, "parts")
        line: dict[str, Any] = {"id": str(uuid5(_MADE_FROM, f"{session.id}:{len(lines)}")), "timestamp": at}
        if value.get("role") == MODEL:
            calls = [part for part in parts if "functionCall" in part]
            spoken_parts = [part for part in parts if "functionCall" not in part and not part.get("thought")]
            open_calls = [_call(part, len(lines) + number, at) for number, part in enumerate(calls)]
            lines.append(
                line
                | {
                    "type": "gemini",
                    "content": spoken_parts,
                    "thoughts": [],
                    "model": "chatledger",
                    "toolCalls": open_calls,
                }
            )
            continue
        responses = [part for part in parts if "functionResponse" in part]
        for call, part in zip(open_calls, responses, strict=False):
            _answer(call, part)
        if spoken_parts := [part for part in parts if "functionResponse" not in part]:
            lines.append(line | {"type": USER, "content": spoken_parts})
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    name = f"session-{session.at:%Y-%m-%dT%H-%M}-{session.id[:_ID_CHARACTERS]}.jsonl"
    return WrittenSession(content, translated.dropped, name, ("gemini", "--session-file", "{file}"))


AGENT: Final = Agent(NAME, NAME, _roots, _sessions, _line_of, _lines_in, _described, _written, settled=_settled)
