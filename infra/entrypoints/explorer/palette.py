"""Answers of the palette while somebody types: chats, threads, branches and messages, the best of each."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal
from urllib.parse import urlencode

import msgspec

from chatledger.domain.values import Chat
from chatledger.domain.wire import Value

from ..http.routing import HttpCall
from .chats import TITLES, while_typing
from .page import ExplorerPage, path_to

_MOST: Final = 5
_MOST_OF_A_GROUP: Final = 20
_BRANCHES: Final = 1000
"""Branches of a chat that has more are not looked through: each costs a row of the index."""


class PaletteEntry(Value, frozen=True, kw_only=True):
    """A place that the palette leads to: `title` in `detail`, by a path of this server."""

    title: str
    detail: str
    path: str


class Palette(Value, frozen=True, kw_only=True):
    """At most five of each, the best first; twenty where one group is wanted."""

    chats: list[PaletteEntry]
    threads: list[PaletteEntry]
    branches: list[PaletteEntry]
    messages: list[PaletteEntry]


def palette(
    call: HttpCall,
    *,
    q: Annotated[str, msgspec.Meta(max_length=1000)] = "",
    chat: str = "",
    group: Literal["", "chats", "threads", "branches", "messages"] = "",
) -> Palette:
    """Read what there is with these words; without any, the chats and threads that changed last, and the branches of the chat."""
    sought, most = _Sought(call, q), _MOST_OF_A_GROUP if group else _MOST
    chats = sought.chats(most)
    near = [there for there in [call.reader.get_chat(chat) if chat else None] if there is not None]
    near += [other for other in chats if q and other.id != chat]
    return Palette(
        chats=[] if group not in {"", "chats"} else [sought.entry_of(listed) for listed in chats],
        threads=[] if group not in {"", "threads"} else sought.threads(most),
        branches=[] if group not in {"", "branches"} else sought.branches(near)[:most],
        messages=[] if group not in {"", "messages"} else sought.messages(most),
    )


class _Sought:
    """Search of all kinds for the words of a request."""

    def __init__(self, call: HttpCall, q: str) -> None:
        self._call, self._q, self._words = call, q.strip(), q.casefold().split()

    def _fits(self, *names: str | None) -> bool:
        text = " ".join(filter(None, names)).casefold()
        return all(word in text for word in self._words)

    def _path(self, path: str, query: dict[str, str], **parts: str) -> str:
        at = {} if self._call.moment is None else {"at": self._call.sent("at")}
        return path_to(path, **parts) + ("?" + urlencode(query | at) if query or at else "")

    def chats(self, most: int) -> list[Chat]:
        listed = self._call.reader.list_chats(limit=TITLES if self._words else most)
        fitting = [chat for chat in listed if self._fits(chat.title, chat.id)]
        # Those that begin so are first, else those that changed last.
        return sorted(fitting, key=lambda chat: not (chat.title or chat.id).casefold().startswith(self._q.casefold()))[
            :most
        ]

    def entry_of(self, chat: Chat) -> PaletteEntry:
        path = self._path("/c/{chat_id}", {}, chat_id=chat.id)
        return PaletteEntry(title=chat.title or chat.id, detail=chat.user_id, path=path)

    def threads(self, most: int) -> list[PaletteEntry]:
        if self._call.moment is not None:
            return []
        listed = self._call.ledger.list_threads(limit=most, is_named=self._fits)
        return [
            PaletteEntry(
                title=info.thread_id,
                detail=info.owner or "",
                path=self._path("/agents/{thread_id}", {}, thread_id=info.thread_id),
            )
            for info in listed.threads
        ]

    def branches(self, chats: Iterable[Chat]) -> list[PaletteEntry]:
        return [
            PaletteEntry(
                title=branch.name,
                detail=chat.title or chat.id,
                path=self._path("/c/{chat_id}", {"branch": branch.name}, chat_id=chat.id),
            )
            for chat in chats
            if chat.branch_count <= _BRANCHES
            for branch in self._call.reader.list_branches(chat.id)
            if self._fits(branch.name, chat.title, chat.id)
        ]

    def messages(self, most: int) -> list[PaletteEntry]:
        if not self._words:
            return []
        return [
            PaletteEntry(
                title=hit.message.line or hit.message.id,
                detail=hit.message.name,
                path=self._path("/c/{chat_id}", {"m": hit.message.id}, chat_id=hit.message.chat_id),
            )
            for hit in self._call.reader.search(while_typing(self._q), limit=most)
        ]


PAGES: Final = (ExplorerPage("/palette", palette),)
