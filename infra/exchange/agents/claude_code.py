"""Claude Code: one file for each session, whose lines are entries with a `uuid` and the `parentUuid` of what they follow."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec
from msgspec import UNSET

from chatledger.domain.chat.lines import TranscriptLine, values_in
from chatledger.domain.forms.claude_code import NAME, message_in
from chatledger.domain.forms.items import ASSISTANT, TOOL, USER
from chatledger.domain.forms.plain import last_line, list_at, object_at, text_at
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Message

from .agent import Agent, NewSession, SessionFile, WrittenSession, names_in, prompt_title, time_of, time_text, title_of

PROJECT: Final = "claude_project"
SESSION: Final = "claude_session"
SUBPATH: Final = "claude_subpath"
_OTHERS: Final = re.compile("[^A-Za-z0-9]")
"""Characters in the place of which the folder of a project has a dash."""
"""The keys of the metadata of a chat that say of which transcript it is; the subpath of the main one is empty."""
_MODEL: Final = "chatledger"
"""The name of the model in entries for answers that Claude did not write: without one the client hangs."""
_MADE_FROM: Final = UUID("6f0c3f3e-5a83-4c1b-9d0e-0f5c2b7a9e11")


def line_of(value: Any, line_id: str, *, is_main: bool = True) -> TranscriptLine:
    """Return the line that an entry is. Only a main transcript has subagents beside it."""
    entry = last_line(value)
    message = message_in(entry)
    is_boundary = entry.get("subtype") == "compact_boundary"
    parent = entry.get("logicalParentUuid" if is_boundary else "parentUuid", UNSET)
    is_aside = is_main and entry.get("isSidechain") is True
    title = title_of(text_at(entry, "customTitle")) or title_of(text_at(entry, "aiTitle"))
    said = object_at(entry, "message")
    are_results = [object_at(block).get("type") == "tool_result" for block in list_at(said, "content")]
    # As `role_of` has it, in a tenth of the time.
    role = said.get("role")
    name = "" if message is None else TOOL if role == USER and are_results and all(are_results) else str(role)
    is_prompt = name == USER and not is_aside and not entry.get("isCompactSummary")
    return TranscriptLine(
        value,
        text_at(entry, "uuid") or line_id,
        parent if isinstance(parent, str | None) else UNSET,
        name,
        time_of(text_at(entry, "timestamp")),
        is_aside,
        text_at(said, "id") if entry.get("type") == ASSISTANT else None,
        entry.get("type") == USER and any(are_results),
        prompt_title(NAME, entry) if is_prompt else title,
        title is not None and not name,
    )


def lines_in(message: Message) -> list[TranscriptLine]:
    """Return the lines in a message of a chat; one that stands for what something else wrote."""
    if message.form != NAME:
        return [TranscriptLine(None, uuid_of(message), name=message.name)]
    lines = [line_of(value, f"#{message.id}:{number}") for number, value in enumerate(values_in(message.data))]
    return lines if "uuid" in last_line(message.data) else [*lines[:-1], lines[-1]._replace(id=uuid_of(message))]


def uuid_of(message: Message) -> str:
    """Return the `uuid` of the (last) entry for a message: its own, or one made from the id of the message."""
    own = text_at(last_line(message.data), "uuid") if message.form == NAME else None
    if own:
        return own
    last = message.id.rpartition(":")[2]
    try:
        return str(UUID(last))
    except ValueError:
        return str(uuid5(_MADE_FROM, message.id))


def uuid_before(uuid: str, number: int) -> str:
    """Return the `uuid` of the entry that comes so many before the last one for a message."""
    return str(uuid5(_MADE_FROM, f"{uuid}:{number}")) if number else uuid


def whole_entry(entry: dict[str, Any], message: Message, uuid: str, session_id: str) -> dict[str, Any]:
    """Return an entry with its `uuid`; one that was made of what something else wrote with all that Claude notes."""
    if "uuid" in entry:
        return {**entry, "uuid": uuid}
    answer: Any = entry["message"]
    if entry["type"] == ASSISTANT:
        content = answer["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        calls = any(object_at(block).get("type") == "tool_use" for block in blocks)
        answer = {
            "id": f"msg_{uuid.replace('-', '')}",
            "type": "message",
            "role": ASSISTANT,
            "model": _MODEL,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
            **answer,
            "content": blocks,
        }
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "timestamp": time_text(message.created_at),
        "sessionId": session_id,
        **entry,
        "message": answer,
        "uuid": uuid,
    }


def _roots(environ: Mapping[str, str], home: Path) -> list[Path]:
    return [Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"]


def chat_id_of(project: str, session: str, subpath: str = "") -> str:
    """Return the id of the chat that is made for a transcript; slashes in the names are escaped."""
    names = (project, session, *filter(None, (subpath,)))
    return "/".join(("claude", *(name.replace("%", "%25").replace("/", "%2F") for name in names)))


def _sessions(root: Path) -> Iterator[SessionFile]:
    # 26,700 sessions are listed in a third of the time that `glob` takes.
    projects = ((name, root / name, *names_in(root / name)) for name in sorted(names_in(root)[1]))
    for project, folder, names, folders in projects:
        for session in (name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")):
            path = folder / f"{session}.jsonl"
            keys = {PROJECT: project, SESSION: session, SUBPATH: ""}
            chat_id = chat_id_of(project, session)
            yield SessionFile(path, chat_id, {"session": session, **keys})
            beside = folder / session
            for sub in sorted(beside.rglob("*.jsonl")) if session in folders else ():
                keys[SUBPATH] = sub.relative_to(beside).with_suffix("").as_posix()
                noted: Mapping[str, Any] = {}
                with contextlib.suppress(OSError, ValueError):
                    noted = object_at(msgspec.json.decode(sub.with_suffix(".meta.json").read_bytes()))
                call = text_at(noted, "toolUseId")
                more = {"parent": chat_id} | ({"tool_call_id": call} if call else {})
                yield SessionFile(
                    sub, chat_id_of(project, session, keys[SUBPATH]), {"session": sub.stem, **keys, **more}
                )


def session_file(path: Path, session: str, entry: Mapping[str, Any]) -> SessionFile:
    """Return a transcript that lies anywhere, under the name that its session has where Claude Code keeps it, by an entry."""
    project = _OTHERS.sub("-", text_at(entry, "cwd") or "")
    agent_id = text_at(entry, "agentId") if entry.get("isSidechain") is True else None
    subpath = f"subagents/agent-{agent_id}" if agent_id else ""
    keys = {"session": subpath.rpartition("/")[2] or session, PROJECT: project, SESSION: session, SUBPATH: subpath}
    more = {"parent": chat_id_of(project, session)} if subpath else {}
    return SessionFile(path, chat_id_of(project, session, subpath), keys | more)


_FIELDS: Final = {"cwd": "cwd", "git_branch": "gitBranch", "agent_version": "version"}


def _described(value: Any) -> dict[str, str]:
    entry = last_line(value)
    model = text_at(object_at(entry, "message"), "model")
    fields = {key: text for key, field in _FIELDS.items() if (text := text_at(entry, field))}
    return fields | ({"model": model} if model and model != "<synthetic>" else {})


def _written(messages: Sequence[Message], session: NewSession) -> WrittenSession:
    translated = translate(messages, NAME)
    entries: list[dict[str, Any]] = []
    for number, (value, places) in enumerate(zip(translated.messages, translated.origins, strict=True)):
        message = messages[places[-1]]
        uuid = str(uuid5(_MADE_FROM, f"{session.id}:{number}"))
        entry = whole_entry(dict(value), message, uuid, session.id)
        entry |= {"parentUuid": entries[-1]["uuid"] if entries else None, "sessionId": session.id, "cwd": session.cwd}
        entries.append(entry)
    content = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    name, command = f"{session.id}.jsonl", ("claude", "--resume", "{file}", "--fork-session")
    return WrittenSession(content, translated.dropped, name, command)


def _beside(value: Any) -> str | None:
    return text_at(object_at(last_line(value), "toolUseResult"), "persistedOutputPath")


AGENT: Final = Agent("claude-code", NAME, _roots, _sessions, line_of, lines_in, _described, _written, _beside)
