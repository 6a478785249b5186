"""The page of the sessions of coding agents whose transcripts are kept, those that went on last first."""

import shlex
from typing import Annotated, Final

import msgspec

from chatledger.domain.values import Chat, SearchHit
from chatledger.domain.wire import Value

from ...exchange.agents.every import AGENTS, agent_named
from ..http.routing import HttpCall
from .chats import TITLES, search_chats
from .page import ExplorerPage

_ROWS: Final = 100


class CodingSession(Value, frozen=True, kw_only=True):
    """
    A session of a coding agent: the chat that keeps it, and passages that a search found in it.

    `resume` is the command that hands it to an agent, which goes on with it.
    """

    chat: Chat
    agent: str
    folder: str
    git_branch: str
    hits: list[SearchHit]
    resume: str


class CodingSessions(Value, frozen=True, kw_only=True):
    """
    A page of sessions.

    Args:
        rows: The sessions, those that went on last first; of a search those with such a title, folder or branch, and then the best
            hits. Where most are of subagents, a page may have few, though others follow.
        next: To be sent as `after` for those that follow; None where there are no more.
        agents: The agents that are known.
        q, agent, folder, target, subagents: The filter of the request, and the agent that is to go on.
        is_degraded: Whether the search index was being built, so that hits may be missing.
    """

    rows: list[CodingSession]
    next: str | None
    agents: list[str]
    q: str
    agent: str
    folder: str
    target: str
    subagents: bool
    is_degraded: bool = False


def sessions(
    call: HttpCall,
    *,
    agent: str = "",
    folder: str = "",
    q: Annotated[str, msgspec.Meta(max_length=1000)] = "",
    target: str = "",
    subagents: bool = False,
    after: str | None = None,
) -> CodingSessions:
    """Read a page of sessions of all agents or of one, of all folders or of one; costs the same however many are kept."""
    agent = agent_named(agent).name if agent else ""
    target = agent_named(target).name if target else ""
    hits: dict[str, list[SearchHit]] = {}
    next_id: str | None = None
    is_degraded = False
    if sought := q.strip():
        recent = _newest(call, agent, folder, limit=TITLES // len(AGENTS))
        hits_by_chat, is_degraded = search_chats(call, sought, None, recent)
        hits = {chat.id: passages for chat, passages in hits_by_chat}
        chats = [
            chat for chat, _ in hits_by_chat if agent in {"", _of(chat, "agent")} and folder in {"", _of(chat, "cwd")}
        ]
    else:
        listed = _newest(call, agent, folder, limit=_ROWS + 1, after=after or None)
        chats = listed[:_ROWS]
        next_id = chats[-1].id if len(listed) > _ROWS else None
    return CodingSessions(
        rows=[
            CodingSession(
                chat=chat,
                agent=_of(chat, "agent"),
                folder=_of(chat, "cwd"),
                git_branch=_of(chat, "git_branch"),
                hits=hits.get(chat.id, []),
                resume=shlex.join(["chatledger", "resume", chat.id, *(["--in", target] if target else [])]),
            )
            for chat in chats
            if _of(chat, "agent") in AGENTS and (subagents or not _of(chat, "parent"))
        ],
        next=next_id,
        agents=list(AGENTS),
        q=q,
        agent=agent,
        folder=folder,
        target=target,
        subagents=subagents,
        is_degraded=is_degraded,
    )


def _newest(call: HttpCall, agent: str, folder: str, *, limit: int, after: str | None = None) -> list[Chat]:
    """The sessions that went on last, and so many of each agent: the index has a list of each agent and of each folder, not of all."""
    if folder:
        lists: list[dict[str, str]] = [{"cwd": folder} | ({"agent": agent} if agent else {})]
    else:
        lists = [{"agent": name} for name in ([agent] if agent else AGENTS)]
    chats = [chat for where in lists for chat in call.reader.list_chats(metadata=where, limit=limit, after=after)]
    return sorted(chats, key=lambda chat: (-chat.updated_at, chat.id))


def _of(chat: Chat, key: str) -> str:
    return str((chat.metadata or {}).get(key, ""))


PAGES: Final = (ExplorerPage("/sessions", sessions, "sessions.html"),)
