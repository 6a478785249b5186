"""Transcripts as coding agents write them, in our own words: the shapes are those of files that the clients wrote."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

SESSION: Final = "3f0e9b62-0000-4000-8000-000000000001"
THREAD: Final = "01a1b2c3-0000-7000-8000-000000000002"
_TIME: Final = "2026-11-20T10:00:{:02}.000Z"


def claude_entry(uuid: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    """An entry of Claude Code."""
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        message = {"id": f"msg_{uuid}", "type": "message", "role": role, "model": "claude-test", "content": blocks}
    noted = {"cwd": "/src/trip", "sessionId": SESSION, "version": "2.1.197", "gitBranch": "main"}
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": role,
        "message": message,
        "uuid": uuid,
        "timestamp": _TIME.format(int(uuid.strip("uamsrx-") or 0) % 60),
        **noted,
        **more,
    }


CLAUDE: Final[list[dict[str, Any]]] = [
    {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION},
    claude_entry("u1", None, "user", "Where is fado sung?"),
    {"type": "attachment", "uuid": "x2", "parentUuid": "u1", "attachment": {"type": "skill_listing"}},
    claude_entry(
        "a3", "x2", "assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]
    ),
    claude_entry("r4", "a3", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "alfama.py"}]),
    claude_entry("a5", "r4", "assistant", "In Alfama \u2013 \u00fc, \U0001f3b5."),
    {"type": "system", "subtype": "turn_duration", "uuid": "s6", "parentUuid": "a5"},
    {"type": "last-prompt", "lastPrompt": "Where is fado sung?", "leafUuid": "s6"},
    claude_entry("u7", "s6", "user", "And jazz?"),
    claude_entry("a8", "u7", "assistant", "In Baixa."),
    claude_entry("u9", "a5", "user", "And opera?"),
    claude_entry("a10", "u9", "assistant", "In Chiado."),
    {"type": "ai-title", "aiTitle": "Music in Lisbon", "sessionId": SESSION},
]
"""A session with a call, bookkeeping between turns, and a prompt that was written anew."""


def codex_line(ordinal: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A line of a rollout of Codex."""
    return {"timestamp": _TIME.format(ordinal % 60), "ordinal": ordinal, "type": kind, "payload": payload}


def _message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


_PAYLOADS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("session_meta", {"id": THREAD, "cwd": "/src/trip", "cli_version": "0.171.0", "git": {"branch": "main"}}),
    ("turn_context", {"cwd": "/src/trip", "model": "gpt-test"}),
    ("response_item", _message("developer", "You are Codex.")),
    ("response_item", _message("user", "<environment_context>\n  <cwd>/src/trip</cwd>")),
    ("response_item", _message("user", "Where is fado sung?")),
    ("event_msg", {"type": "user_message", "message": "Where is fado sung?"}),
    ("response_item", {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}),
    (
        "response_item",
        {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls"}', "call_id": "c1"},
    ),
    ("response_item", {"type": "function_call_output", "call_id": "c1", "output": "alfama.py"}),
    ("event_msg", {"type": "token_count", "info": None}),
    ("response_item", _message("assistant", "In Alfama.")),
    ("event_msg", {"type": "agent_message", "message": "In Alfama."}),
    ("response_item", _message("user", "And jazz?")),
    ("response_item", _message("assistant", "In Baixa.")),
    ("event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
    ("response_item", _message("user", "And opera?")),
    ("response_item", _message("assistant", "In Chiado.")),
    ("event_msg", {"type": "task_complete"}),
]
CODEX: Final = [codex_line(number, kind, payload) for number, (kind, payload) in enumerate(_PAYLOADS)]
"""A thread with a call, what the client adds, and a turn that was taken back."""


def _pi_entry(entry_id: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    head = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": _TIME.format(int(entry_id))}
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**head, "message": {"role": role, "content": blocks, **more}}


PI_SESSION: Final = "01a1b2c3-0000-7000-8000-000000000003"
PI: Final[list[dict[str, Any]]] = [
    {"type": "session", "version": 3, "id": PI_SESSION, "timestamp": _TIME.format(0), "cwd": "/src/trip"},
    {
        "type": "model_change",
        "id": "01",
        "parentId": None,
        "timestamp": _TIME.format(1),
        "provider": "p",
        "modelId": "m",
    },
    _pi_entry("02", "01", "user", "Where is fado sung?"),
    _pi_entry(
        "03", "02", "assistant", [{"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls"}}]
    ),
    _pi_entry("04", "03", "toolResult", "alfama.py", toolCallId="t1", toolName="bash", isError=False),
    _pi_entry("05", "04", "assistant", "In Alfama.", model="pi-test"),
    _pi_entry("06", "05", "user", "And jazz?"),
    _pi_entry("07", "06", "assistant", "In Baixa."),
    {"type": "label", "id": "08", "parentId": "05", "timestamp": _TIME.format(8), "targetId": "05", "label": "here"},
    _pi_entry("09", "08", "user", "And opera?"),
    _pi_entry("10", "09", "assistant", "In Chiado."),
    {"type": "session_info", "id": "11", "parentId": "10", "timestamp": _TIME.format(11), "name": "Music in Lisbon"},
]
"""A session of pi with a call, and a turn that was gone back from."""


GEMINI_SESSION: Final = "01a1b2c3-0000-4000-8000-000000000004"
GEMINI_NAME: Final = "2026-11-20T10-00-01a1b2c3"


def gemini_line(message_id: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """A message of Gemini CLI."""
    head = {"id": message_id, "timestamp": _TIME.format(int(message_id.strip("m"))), "type": kind}
    return {**head, "content": [{"text": content}] if kind == "user" and isinstance(content, str) else content, **more}


def _gemini_response() -> dict[str, Any]:
    return {"functionResponse": {"id": "c1", "name": "run_shell_command", "response": {"output": "alfama.py"}}}


_GEMINI_CALL: Final[dict[str, Any]] = {"id": "c1", "name": "run_shell_command", "args": {"command": "ls"}}
_GEMINI_CONTEXT: Final = gemini_line("m01", "user", "<session_context>\nThis is the Gemini CLI.")
_GEMINI_ASKED: Final = gemini_line("m02", "user", "Where is fado sung?")
_GEMINI_CALLED: Final = gemini_line("m03", "gemini", "", thoughts=[], model="gemini-test")
GEMINI: Final[list[dict[str, Any]]] = [
    {"sessionId": GEMINI_SESSION, "projectHash": "c3", "startTime": _TIME.format(0), "kind": "main"},
    {"$set": {"messages": [_GEMINI_CONTEXT], "lastUpdated": _TIME.format(1)}},
    _GEMINI_ASKED,
    {"$set": {"lastUpdated": _TIME.format(2)}},
    gemini_line("m03", "gemini", "Let me look.", thoughts=[{"subject": "Files", "description": "I list them."}]),
    {"$set": {"lastUpdated": _TIME.format(3)}},
    gemini_line(
        "m03",
        "gemini",
        "Let me look.",
        thoughts=[{"subject": "Files", "description": "I list them."}],
        model="gemini-test",
        toolCalls=[{**_GEMINI_CALL, "result": [_gemini_response()], "status": "success"}],
    ),
    gemini_line("m04", "user", [_gemini_response()]),
    gemini_line("m05", "gemini", "In Alfama.", thoughts=[], model="gemini-test"),
    {"$set": {"messages": [_GEMINI_CONTEXT, _GEMINI_ASKED, _GEMINI_CALLED], "lastUpdated": _TIME.format(5)}},
    gemini_line("m06", "user", "And jazz?"),
    gemini_line("m07", "gemini", "In Baixa."),
    {"$rewindTo": "m06"},
    gemini_line("m08", "user", "And opera?"),
    gemini_line("m09", "gemini", "In Chiado."),
    {"$set": {"lastUpdated": _TIME.format(9)}},
]
"""A session of Gemini CLI with a call that is noted under the answer's id, a resume, and a rewind."""


def as_bytes(lines: Iterable[dict[str, Any]]) -> bytes:
    """Lines as JavaScript and serde write them."""
    return b"".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines)


def claude_file(home: Path, content: bytes, session: str = SESSION) -> Path:
    """Write a transcript where Claude Code keeps it."""
    return _written(home / ".claude" / "projects" / "-src-trip" / f"{session}.jsonl", content)


def codex_file(home: Path, content: bytes, thread: str = THREAD) -> Path:
    """Write a rollout where Codex keeps it."""
    return _written(home / f".codex/sessions/2026/11/20/rollout-2026-11-20T10-00-00-{thread}.jsonl", content)


def pi_file(home: Path, content: bytes) -> Path:
    """Write a session where pi keeps it."""
    return _written(home / f".pi/agent/sessions/--src-trip--/2026-11-20T10-00-00-000Z_{PI_SESSION}.jsonl", content)


def gemini_file(home: Path, content: bytes) -> Path:
    """Write a session where Gemini CLI keeps it."""
    _written(home / ".gemini/tmp/trip/.project_root", b"/src/trip")
    return _written(home / f".gemini/tmp/trip/chats/session-{GEMINI_NAME}.jsonl", content)


def _written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


OPENCODE_SESSION: Final = "ses_22d46081d0012gD7WnXMvzNhib"
_OPENCODE_SCHEMA: Final = """
pragma journal_mode = wal;
create table if not exists session (id text primary key, project_id text not null, parent_id text, slug text not null,
    directory text not null, title text not null, version text not null, summary_additions integer, cost real default 0 not null,
    tokens_input integer default 0 not null, model text, time_created integer not null, time_updated integer not null);
create table if not exists message (id text primary key, session_id text not null, time_created integer not null, data text not null);
create table if not exists part (id text primary key, message_id text not null, session_id text not null, data text not null);
delete from session; delete from message; delete from part;
"""
"""The columns of 1.18.33 that are read, without those that a session of ours would have empty."""


def opencode_message(message_id: str, role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message of OpenCode, complete if it is an answer, without the ids that its rows have."""
    created = 1_795_000_000_000 + int(message_id.strip("m"))
    told = {"time": {"created": created}, "agent": "build"}
    if role == "assistant":
        told = {"modelID": "open-test", "time": {"created": created, "completed": created + 1}}
    return {"id": message_id, "info": {"role": role, **told, **more}, "parts": list(parts)}


def opencode_text(text: str, **more: Any) -> dict[str, Any]:
    """A part of OpenCode that is text."""
    return {"type": "text", "text": text, **more}


_OPENCODE_STATE: Final = {"status": "completed", "input": {"command": "ls"}, "output": "alfama.py", "title": "ls"}
OPENCODE: Final[list[dict[str, Any]]] = [
    opencode_message("m01", "user", opencode_text("Where is fado sung?")),
    opencode_message(
        "m02",
        "assistant",
        {"type": "step-start"},
        {"type": "reasoning", "text": "I list the files."},
        {"type": "tool", "tool": "bash", "callID": "c1", "state": _OPENCODE_STATE},
        {"type": "step-finish", "reason": "tool-calls", "cost": 0},
    ),
    opencode_message("m03", "assistant", opencode_text("In Alfama.")),
    opencode_message("m04", "user", opencode_text("And opera?")),
    opencode_message("m05", "assistant", opencode_text("In Chiado.")),
]
"""A session of OpenCode with a call."""


def opencode_file(home: Path, messages: Sequence[dict[str, Any]], updated: int, **session: Any) -> Path:
    """Write the database of OpenCode with one session, as it is in the end or at a moment before."""
    path = home / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    row: dict[str, Any] = {
        "id": OPENCODE_SESSION,
        "project_id": "global",
        "slug": "misty-lagoon",
        "directory": "/src/trip",
    }
    row |= {"title": "Music in Lisbon", "version": "1.18.33", "summary_additions": 0, "tokens_input": 3}
    row |= {"time_created": 1_795_000_000_000, "time_updated": updated, **session}
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_OPENCODE_SCHEMA)
        names, places = ", ".join(row), ", ".join("?" * len(row))
        connection.execute(f"insert into session ({names}) values ({places})", [*row.values()])
        for message in messages:
            info, created = json.dumps(message["info"], separators=(",", ":")), message["info"]["time"]["created"]
            connection.execute("insert into message values (?, ?, ?, ?)", (message["id"], row["id"], created, info))
            for number, part in enumerate(message["parts"]):
                values = f"p{message['id']}-{number}", message["id"], row["id"], json.dumps(part, separators=(",", ":"))
                connection.execute("insert into part values (?, ?, ?, ?)", values)
        connection.commit()
    return path
