"""Codex: one rollout file for each thread, whose lines follow one another; what is taken back is said by an event."""

import contextlib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from chatledger.domain.chat.lines import TranscriptLine, values_in
from chatledger.domain.forms.codex import NAME
from chatledger.domain.forms.items import ASSISTANT, USER
from chatledger.domain.forms.plain import last_line, list_at, object_at, text_at
from chatledger.domain.forms.reading import items_of, role_of
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Message

from .agent import Agent, NewSession, SessionFile, WrittenSession, prompt_title, time_of, time_text

_ID_CHARACTERS: Final = 36
_VERSION: Final = "0.171.0"
"""The version of the client whose files are written."""


def _line_of(value: Any, line_id: str) -> TranscriptLine:
    line = last_line(value)
    payload, ordinal = object_at(line, "payload"), line.get("ordinal")
    turns = payload.get("num_turns") if payload.get("type") == "thread_rolled_back" else None
    name = role_of(NAME, line, "") if items_of(NAME, line) else ""
    return TranscriptLine(
        value,
        str(ordinal) if isinstance(ordinal, int) else line_id,
        name=name,
        created_at=time_of(text_at(line, "timestamp")),
        title=prompt_title(NAME, line) if name == USER else None,
        steps_back=turns if isinstance(turns, int) else 0,
    )


def _lines_in(message: Message) -> list[TranscriptLine]:
    return [_line_of(value, f"#{message.id}:{number}") for number, value in enumerate(values_in(message.data))]


def _roots(environ: Mapping[str, str], home: Path) -> list[Path]:
    return [Path(environ.get("CODEX_HOME") or home / ".codex")]


def _sessions(root: Path) -> Iterator[SessionFile]:
    rollouts = [
        f"{folder}/{name}"
        for place in ("sessions", "archived_sessions")
        for folder, folders, names in os.walk(root / place)
        for name in _sorted_rollouts(folders, names)
    ]
    seen: set[str] = set()
    # Resuming writes a cold file back as a plain one, which is the newer of the two.
    for path in (path for end in (".jsonl", ".jsonl.zst") for path in rollouts if path.endswith(end)):
        thread = path.rpartition("/")[2].partition(".")[0][-_ID_CHARACTERS:]
        if thread not in seen:
            seen.add(thread)
            yield SessionFile(Path(path), f"{NAME}/{thread}", {"session": thread})


def _sorted_rollouts(folders: list[str], names: list[str]) -> list[str]:
    """The rollouts among the names of a folder, in order; so are its folders, in place, as `os.walk` goes through them."""
    folders.sort()
    return sorted(name for name in names if name.startswith("rollout-"))


def _described(value: Any) -> dict[str, str]:
    line = last_line(value)
    kind, payload = text_at(line, "type"), object_at(line, "payload")
    if kind not in {"session_meta", "turn_context"}:
        return {}
    parent = text_at(object_at(payload, "source", "subagent", "thread_spawn"), "parent_thread_id")
    forked = text_at(payload, "forked_from_id")
    fields = {
        "cwd": text_at(payload, "cwd"),
        "model": text_at(payload, "model"),
        "agent_version": text_at(payload, "cli_version"),
        "git_branch": text_at(object_at(payload, "git"), "branch"),
        "parent": f"{NAME}/{parent}" if parent else None,
        "forked_from": f"{NAME}/{forked}" if forked else None,
        "forked_at": str(payload["forked_from_ordinal_exclusive"])
        if "forked_from_ordinal_exclusive" in payload
        else None,
    }
    return {key: text for key, text in fields.items() if text}


def _item(message: Mapping[str, Any]) -> dict[str, Any]:
    """An item as Codex writes it, with a type and blocks."""
    if "role" not in message:
        return dict(message)
    content, kind = message["content"], "output_text" if message["role"] == ASSISTANT else "input_text"
    blocks = [{"type": kind, "text": content}] if isinstance(content, str) else content
    return {"type": "message", "role": message["role"], "content": blocks}


def _written(messages: Sequence[Message], session: NewSession) -> WrittenSession:
    translated = translate(messages, "responses")
    provider = "openai"
    with contextlib.suppress(OSError, ValueError):
        config = tomllib.loads((session.root / "config.toml").read_text(encoding="utf-8"))
        provider = text_at(config, "model_provider") or provider
    begun = time_text(session.at.timestamp() * 1000)
    meta = {"id": session.id, "timestamp": begun, "cwd": session.cwd, "originator": "codex_cli_rs", "source": "cli"}
    meta |= {"cli_version": _VERSION, "model_provider": provider}
    lines: list[tuple[str, str, dict[str, Any]]] = [(begun, "session_meta", meta)]
    is_listed = False
    for value, places in zip(translated.messages, translated.origins, strict=True):
        item, said_at = _item(value), time_text(messages[places[-1]].created_at)
        lines.append((said_at, "response_item", item))
        if not is_listed and item.get("role") == USER:
            # The picker lists a thread by this event alone, which it looks for near the beginning.
            text = "\n".join(text_at(object_at(block), "text") or "" for block in list_at(item, "content"))
            lines.append((said_at, "event_msg", {"type": "user_message", "message": text, "kind": "plain"}))
            is_listed = True
    content = b"".join(
        msgspec.json.encode({"timestamp": timestamp, "type": kind, "payload": payload}) + b"\n"
        for timestamp, kind, payload in lines
    )
    name = f"sessions/{session.at:%Y/%m/%d}/rollout-{session.at:%Y-%m-%dT%H-%M-%S}-{session.id}.jsonl"
    return WrittenSession(content, translated.dropped, name, (NAME, "resume", session.id))


AGENT: Final = Agent(NAME, NAME, _roots, _sessions, _line_of, _lines_in, _described, _written)
