"""OpenCode: one database of all sessions; a message and its parts are rows, which change until an answer is complete."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from chatledger.domain.chat.lines import TranscriptLine, values_in
from chatledger.domain.forms import anthropic
from chatledger.domain.forms.items import ASSISTANT, USER
from chatledger.domain.forms.opencode import NAME
from chatledger.domain.forms.plain import last_line, object_at, text_at
from chatledger.domain.forms.reading import items_of, role_of
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Message

from .agent import Agent, NewSession, SessionFile, WrittenSession, prompt_title, title_of

INFO: Final = "opencode"
"""The key in the metadata of a chat of what OpenCode has of the session as a whole."""
_VERSION: Final = "1.18.33"
"""The version of the client whose files are written."""
_NS_PER_MS: Final = 1_000_000
_UNTITLED: Final = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT.*")
_NO_TOKENS: Final = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def _line_of(value: Any, line_id: str) -> TranscriptLine:
    line = last_line(value)
    info = object_at(line, "info")
    name = role_of(NAME, line, "") if items_of(NAME, line) else ""
    created = object_at(info, "time").get("created")
    return TranscriptLine(
        value,
        text_at(info, "id") or line_id,
        name=name,
        created_at=created if isinstance(created, int) else None,
        title=prompt_title(NAME, line) if name == USER else None,
    )


def _lines_in(message: Message) -> list[TranscriptLine]:
    return [_line_of(value, f"#{message.id}:{number}") for number, value in enumerate(values_in(message.data))]


def _roots(environ: Mapping[str, str], home: Path) -> list[Path]:
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / NAME
    return [data / (environ.get("OPENCODE_DB") or "opencode.db")]


def _read(path: Path, *queries: tuple[str, Sequence[str]]) -> list[list[sqlite3.Row]]:
    """The rows that queries find at one moment of a database, to which a client may write meanwhile."""
    writes = path.with_name(f"{path.name}-wal")
    while True:
        # Where no log of writes is, nobody has it open, and reading would make one in the agent's folder.
        stamp, mode = path.stat().st_mtime_ns, "mode=ro" if writes.exists() else "immutable=1"
        try:
            with closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
            ) as database:
                database.row_factory = sqlite3.Row
                database.execute("begin")
                rows = [database.execute(*query).fetchall() for query in queries]
        except sqlite3.Error as error:
            msg = f"{path} cannot be read: {error}"
            raise OSError(msg) from error
        if mode == "mode=ro" or (path.stat().st_mtime_ns == stamp and not writes.exists()):
            return rows


def _info(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the session as `opencode export` has it; columns that a version has not are absent."""
    told = {key: value for key, value in row.items() if value is not None}

    def number(key: str) -> int | float:
        value = told.get(key, 0)
        return int(value) if value == int(value) else value

    def decoded(key: str) -> Any:
        return msgspec.json.decode(told[key]) if key in told else None

    summary: dict[str, Any] = {what: number(f"summary_{what}") for what in ("additions", "deletions", "files")}
    if "summary_diffs" in told:
        summary["diffs"] = decoded("summary_diffs")
    tokens = {what: number(f"tokens_{what}") for what in ("input", "output", "reasoning")}
    times = {what: told.get(f"time_{what}") for what in ("created", "updated", "compacting", "archived")}
    info = {
        "id": told["id"],
        "slug": told.get("slug"),
        "projectID": told.get("project_id"),
        "workspaceID": told.get("workspace_id"),
        "directory": told.get("directory"),
        "path": told.get("path"),
        "parentID": told.get("parent_id"),
        "title": told.get("title"),
        "agent": told.get("agent"),
        "model": decoded("model"),
        "version": told.get("version"),
        "summary": summary if any(f"summary_{what}" in told for what in summary) else None,
        "cost": number("cost") if "cost" in told else None,
        "tokens": {**tokens, "cache": {what: number(f"tokens_cache_{what}") for what in ("read", "write")}}
        if "tokens_input" in told
        else None,
        "share": {"url": told["share_url"]} if "share_url" in told else None,
        "metadata": decoded("metadata"),
        "revert": decoded("revert"),
        "permission": decoded("permission"),
        "time": {what: at for what, at in times.items() if at is not None},
    }
    return {key: value for key, value in info.items() if value is not None}


def _sessions(root: Path) -> Iterator[SessionFile]:
    (rows,) = _read(root, ("select * from session order by time_created, id", ()))
    for row in rows:
        info = _info(dict(row))
        told: dict[str, Any] = {"session": info["id"], "cwd": info.get("directory", ""), INFO: info}
        told |= {"agent_version": info["version"]} if "version" in info else {}
        told |= {"parent": f"{NAME}/{info['parentID']}"} if "parentID" in info else {}
        title = None if _UNTITLED.fullmatch(info.get("title", "")) else title_of(info.get("title"))
        changed = info["time"].get("updated", 0) * _NS_PER_MS
        yield SessionFile(root, f"{NAME}/{info['id']}", told, changed, title)


def _with_ids(data: str, **ids: str) -> str:
    """An object in JSON with further fields at its end."""
    return data.rstrip().removesuffix("}") + "".join(f',"{key}":"{value}"' for key, value in ids.items()) + "}"


def _rows(file: SessionFile, *, at_end: bool) -> tuple[list[bytes], bool]:
    session, lines = str(file.metadata["session"]), list[bytes]()
    part_query = "select id, message_id, data from part where session_id = ? order by id"
    message_query = "select id, data from message where session_id = ? order by time_created, id"
    part_rows, message_rows = _read(file.path, (part_query, (session,)), (message_query, (session,)))
    parts: dict[str, list[str]] = {}
    for part_id, message_id, data in part_rows:
        part = _with_ids(data, id=part_id, sessionID=session, messageID=message_id)
        parts.setdefault(message_id, []).append(part)
    for message_id, data in message_rows:
        info = object_at(msgspec.json.decode(data))
        if not at_end and info.get("role") == ASSISTANT and "completed" not in object_at(info, "time"):
            return lines, False
        info_text = _with_ids(data, id=message_id, sessionID=session)
        lines.append(f'{{"info":{info_text},"parts":[{",".join(parts.get(message_id, ()))}]}}'.encode())
    return lines, True


def _described(value: Any) -> dict[str, str]:
    model = text_at(object_at(last_line(value), "info"), "modelID")
    return {"model": model} if model else {}


def _exported(metadata: Mapping[str, Any], values: Sequence[Any]) -> bytes:
    """Return the document that `opencode export` prints."""
    import json

    document = {"info": metadata.get(INFO, {}), "messages": [last_line(value) for value in values]}
    return json.dumps(document, ensure_ascii=False, indent=2).encode(errors="surrogateescape")


class _Ids:
    """Ids as OpenCode makes them, which sort by time: 48 bits of a time with a count, and 14 characters."""

    def __init__(self, session: NewSession) -> None:
        self._number = int(session.at.timestamp() * 1000) * 0x1000
        self._end = session.id.replace("-", "")[-14:]

    def __call__(self, kind: str) -> str:
        self._number += 1
        return f"{kind}_{self._number % (1 << 48):012x}{self._end}"


def _part(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part for a block of Anthropic's API that is neither a call nor a result."""
    kind, source = block.get("type"), object_at(block, "source")
    if kind == "text":
        return {"type": "text", "text": block["text"]}
    if kind in {"image", "document"} and "data" in source:
        media_type = source.get("media_type", "image/png")
        return {"type": "file", "mime": media_type, "url": f"data:{media_type};base64,{source['data']}"}
    return None


def _answer(part: dict[str, Any], block: Mapping[str, Any], at: int) -> None:
    """Complete a call by its result."""
    content = block.get("content") or ""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "\n".join(text_at(object_at(piece), "text") or "" for piece in blocks)
    state, time = part["state"], {"start": at, "end": at}
    if block.get("is_error") is True:
        part["state"] = {"status": "error", "input": state["input"], "error": text, "time": time}
    else:
        ended = {"output": text, "title": part["tool"], "metadata": {}, "time": time}
        part["state"] = {"status": "completed", "input": state["input"], **ended}


def _written(messages: Sequence[Message], session: NewSession) -> WrittenSession:
    translated, ids = translate(messages, anthropic.NAME), _Ids(session)
    session_id, at = ids("ses"), int(session.at.timestamp() * 1000)
    written: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    model = {"providerID": "chatledger", "modelID": "chatledger"}
    question_id = ""
    for value, places in zip(translated.messages, translated.origins, strict=True):
        said_at, content = messages[places[-1]].created_at, value["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts: list[dict[str, Any]] = []
        for block in blocks:
            if block["type"] == "tool_result" and block["tool_use_id"] in calls:
                _answer(calls[block["tool_use_id"]], block, said_at)
            elif block["type"] == "tool_use":
                call = {"type": "tool", "tool": block["name"], "callID": block["id"]}
                calls[block["id"]] = part = call | {"state": {"status": "pending", "input": block["input"], "raw": ""}}
                parts.append(part)
            elif (other := _part(block)) is not None:
                parts.append(other)
        if not parts:
            continue
        message_id = ids("msg")
        info: dict[str, Any] = {"id": message_id, "sessionID": session_id, "role": value["role"], "agent": "build"}
        if value["role"] == USER:
            question_id = message_id
            info |= {"time": {"created": said_at}, "model": model}
        else:
            info |= {"parentID": question_id, "mode": "build", "path": {"cwd": session.cwd, "root": "/"}, **model}
            info |= {"cost": 0, "tokens": _NO_TOKENS, "time": {"created": said_at, "completed": said_at}}
            info["finish"] = "tool-calls" if parts[-1]["type"] == "tool" else "stop"
        named = [part | {"id": ids("prt"), "sessionID": session_id, "messageID": message_id} for part in parts]
        calls |= {part["callID"]: part for part in named if part["type"] == "tool"}
        written.append({"info": info, "parts": named})
    info = {"id": session_id, "slug": session.id, "projectID": "global", "directory": session.cwd}
    first = next((title_of(message.text) for message in messages if message.name == USER), None)
    info |= {"title": first or "chatledger", "version": _VERSION, "time": {"created": at, "updated": at}}
    content = msgspec.json.encode({"info": info, "messages": written})
    command = (NAME, "--session", session_id)
    return WrittenSession(content, translated.dropped, f"{session_id}.json", command, (NAME, "import", "{file}"))


AGENT: Final = Agent(
    NAME, NAME, _roots, _sessions, _line_of, _lines_in, _described, _written, rows=_rows, exported=_exported
)
