"""Threads as the ledger knows them: a chat, the checkpoints that agents have under its id, or both."""

from collections.abc import Iterator
from contextlib import suppress
from heapq import merge
from operator import itemgetter
from typing import Any, Final, NamedTuple

from chatledger.domain.errors import ChatledgerError, NotFoundError
from chatledger.domain.values import Chat
from chatledger.domain.versioned.keys import ASSISTANT, root_of

from ....ledger.ledger import Ledger
from ....ledger.threads import ThreadInfo, Threads, thread_info
from .assistants import Assistants
from .contract import AgentCall

ASSISTANT_ID, GRAPH_ID = "assistant_id", "graph_id"
_PAGE: Final = 32


class KnownThread(NamedTuple):
    """
    A thread.

    Every chat is one, which has no state until an agent runs on it; and so is every thread on which an application ran a graph
    itself.

    Args:
        thread_id: Its id, which is the chat's too.
        chat: The chat, which has the metadata and the end; None where there is none yet.
        info: The record of what agents have there; None where they have nothing yet.
        metadata: Those of the chat. Where these do not name the assistant and the graph, and only one was there, it is named.
    """

    thread_id: str
    chat: Chat | None
    info: ThreadInfo | None
    metadata: dict[str, Any]

    @property
    def created_at(self) -> int:
        """The time when it began, in ms since the epoch."""
        return min(record.created_at for record in (self.chat, self.info) if record is not None)

    @property
    def updated_at(self) -> int:
        """The time when the chat or a state changed last, in ms since the epoch."""
        return max(record.updated_at for record in (self.chat, self.info) if record is not None)

    @property
    def state_updated_at(self) -> int:
        """The time when a state changed last; when the thread began, as long as there is none."""
        return self.created_at if self.info is None else self.info.updated_at

    @property
    def owner(self) -> str | None:
        """The user that owns it; None where nobody does."""
        if self.chat is not None:
            return self.chat.user_id
        return None if self.info is None else self.info.owner

    @property
    def roots(self) -> list[str]:
        """The namespaces of the assistants that have a state here, in the order in which they came up; `""` is that of none."""
        return [] if self.info is None else list(dict.fromkeys(map(root_of, self.info.namespaces)))


def find_thread(call: AgentCall, thread_id: str) -> KnownThread:
    """Look for a thread, in a worker thread; `NotFoundError` where there is none, or it is another user's."""
    chat, info = read_thread_record(call.ledger, thread_id)
    if chat is None and info is None:
        msg = f"Thread with ID {thread_id} not found"
        raise NotFoundError(msg)
    return _known(chat, info, call.assistants, {})


def list_threads(ledger: Ledger, assistants: Assistants) -> Iterator[KnownThread]:
    """List all threads, in no order. Costs their number."""
    infos = {info.thread_id: info for info in Threads(ledger).infos()}
    graphs: dict[str, str | None] = {}
    for chat in ledger.list_chats():
        yield _known(chat, infos.pop(chat.id, None), assistants, graphs)
    for info in infos.values():
        yield _known(None, info, assistants, graphs)


def list_newest(ledger: Ledger, assistants: Assistants) -> Iterator[KnownThread]:
    """
    List all threads, those that changed last first: by the change of the chat, or of what agents have there.

    Both are read in the order of the index, as far as the reader goes on.
    """
    graphs: dict[str, str | None] = {}
    seen: set[str] = set()  # a chat and what agents have under its id are one thread, which comes twice
    for _, thread_id in merge(_by_chat(ledger), _by_thread(ledger), key=itemgetter(0), reverse=True):
        if thread_id in seen:
            continue
        seen.add(thread_id)
        try:
            chat, info = read_thread_record(ledger, thread_id)
        except ChatledgerError:  # it is in quarantine, and cannot be read
            continue
        # It may have been deleted since the page of the list was read.
        if chat is not None or info is not None:
            yield _known(chat, info, assistants, graphs)


def count_threads(ledger: Ledger) -> int:
    """Return the number of threads. Costs a row of the index for each."""
    return ledger.count_chats() + len(Threads(ledger).infos_without_chat())


_Timed = tuple[int, str]
"""A time in ms since the epoch, and the thread that changed then."""


def _by_chat(ledger: Ledger) -> Iterator[_Timed]:
    after: Chat | None = None
    while page := ledger.list_chats(limit=_PAGE, after=after):
        yield from ((chat.updated_at, chat.id) for chat in page)
        after = page[-1]


def _by_thread(ledger: Ledger) -> Iterator[_Timed]:
    after: str | None = None
    while True:
        infos, after = ledger.list_threads(limit=_PAGE, after=after)
        yield from ((info.updated_at, info.thread_id) for info in infos)
        if after is None:
            return


def read_thread_record(ledger: Ledger, thread_id: str) -> tuple[Chat | None, ThreadInfo | None]:
    """Read the chat of a thread, and what agents have there; None for what is not there."""
    with Threads(ledger).reading(thread_id) as thread:
        info = None if thread.record is None else thread_info(thread, thread.record)
    return ledger.get_chat(thread_id), info


def _known(
    chat: Chat | None, info: ThreadInfo | None, assistants: Assistants, graphs: dict[str, str | None]
) -> KnownThread:
    thread_id = chat.id if chat is not None else info.thread_id if info is not None else ""
    metadata: dict[str, Any] = {}
    roots = KnownThread(thread_id, chat, info, metadata).roots
    if len(roots) == 1 and roots[0]:
        assistant_id = roots[0].removeprefix(ASSISTANT)
        if assistant_id not in graphs:
            graphs[assistant_id] = None
            with suppress(NotFoundError):
                graphs[assistant_id] = assistants.get(assistant_id).graph_id
        metadata[ASSISTANT_ID], graph_id = assistant_id, graphs[assistant_id]
        if graph_id is not None:
            metadata[GRAPH_ID] = graph_id
    if chat is not None and chat.metadata is not None:
        metadata |= chat.metadata
    return KnownThread(thread_id, chat, info, metadata)
