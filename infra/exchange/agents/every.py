"""The coding agents whose transcripts are known, and one session of one of them for another."""

from collections.abc import Mapping, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import Final

from chatledger.domain.chat.lines import value_of
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.claude_code import NAME as CLAUDE_CODE
from chatledger.domain.forms.gemini_cli import NAME as GEMINI_CLI
from chatledger.domain.forms.gemini_cli import messages_in
from chatledger.domain.forms.opencode import NAME as OPENCODE
from chatledger.domain.forms.plain import last_line, object_at, text_at
from chatledger.domain.values import Chat, Message

from ...ledger.ledger import Ledger
from . import claude_code, codex, gemini_cli, opencode, pi
from .agent import Agent, SessionFile
from .following import opened

AGENTS: Final[Mapping[str, Agent]] = {
    module.AGENT.name: module.AGENT for module in (claude_code, codex, gemini_cli, opencode, pi)
}
"""The agents by their names."""
ALIASES: Final = {"claude": CLAUDE_CODE, "gemini": GEMINI_CLI}
"""Other names that agents go by."""
_PEEKED_LINES: Final = 20
_PEEKED_BYTES: Final = 1024 * 1024


def agent_named(name: str) -> Agent:
    """
    Return an agent by its name.

    Raises:
        InvalidValueError: None has it.
    """
    agent = AGENTS.get(ALIASES.get(name, name))
    if agent is None:
        msg = f"there is no coding agent {name!r}; known are {', '.join(AGENTS)}"
        raise InvalidValueError(msg)
    return agent


def transcript_in(path: Path) -> tuple[Agent, SessionFile] | None:
    """
    Return whose transcript a file is, wherever it lies, by its first lines; None where it is none.

    Raises:
        OSError: It cannot be read.
    """
    with opened(path) as stream:
        for line in islice(stream, _PEEKED_LINES):
            fields = object_at(last_line(value_of(line[:_PEEKED_BYTES].rstrip(b"\r\n"))))
            session = text_at(fields, "sessionId")
            if session and "parentUuid" in fields:
                return claude_code.AGENT, claude_code.session_file(path, session, fields)
            if session and "projectHash" in fields:
                name = path.stem.removeprefix("session-") if path.name.startswith("session-") else session
                return gemini_cli.AGENT, SessionFile(path, f"{GEMINI_CLI}/{name}", {"session": session})
            kind, payload = text_at(fields, "type"), object_at(fields, "payload")
            if kind == "session_meta" and (thread := text_at(payload, "id")):
                return codex.AGENT, SessionFile(path, f"{codex.AGENT.name}/{thread}", {"session": thread})
            if kind == "session" and "cwd" in fields and (own := text_at(fields, "id")):
                return pi.AGENT, SessionFile(path, f"{pi.AGENT.name}/{own}", {"session": own})
    return None


def whole_chain(ledger: Ledger, chat: Chat) -> list[Message]:
    """Return the active branch of a session; of a fork that points to where it began, with what was said up to there."""
    told = chat.metadata or {}
    chain, parent, before = (
        ledger.get_messages(chat.id),
        str(told.get("forked_from", "")),
        str(told.get("forked_at", "")),
    )
    forked = ledger.get_chat(parent) if before.isdecimal() and parent != chat.id else None
    if forked is None:
        return chain
    ordinals = ((message, message.id.rpartition(":")[2]) for message in whole_chain(ledger, forked))
    shared = [message for message, ordinal in ordinals if not ordinal.isdecimal() or int(ordinal) < int(before)]
    return [*shared, *chain]


def since_summary(messages: Sequence[Message]) -> list[Message]:
    """Return what a model was told of a conversation in the end: the last summary in place of all before it."""
    summaries = [
        place
        for place, message in enumerate(messages)
        if (message.form == CLAUDE_CODE and last_line(message.data).get("isCompactSummary"))
        or (message.form == GEMINI_CLI and messages_in(last_line(message.data)))
        or (message.form == OPENCODE and object_at(last_line(message.data), "info").get("summary") is True)
    ]
    rest = messages[summaries[-1] :] if summaries else messages
    # What a client notes before the first prompt says nothing.
    return list(dropwhile(lambda message: not message.text, rest))
