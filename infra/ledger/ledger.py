"""`Ledger`: conversations on a log, read from an index."""

from operator import itemgetter
from types import TracebackType
from typing import Self

from chatledger.domain.errors import LedgerClosedError
from chatledger.domain.graph import make_graph
from chatledger.domain.rules import check_id
from chatledger.domain.values import Graph

from ..shared import Shared, release
from ..store import Store
from .branches import BranchMethods
from .chats import ChatMethods
from .checkpoints import CheckpointMethods
from .interchange import InterchangeMethods
from .log import LogMethods
from .messages import MessageMethods
from .saves import SaveMethods
from .search import SearchMethods


class Ledger(
    ChatMethods,
    MessageMethods,
    BranchMethods,
    CheckpointMethods,
    SaveMethods,
    SearchMethods,
    InterchangeMethods,
    LogMethods,
):
    """
    Conversations, kept as events on a log and answered from an index. Made by `chatledger.open`.

    Safe for threads. Every write is one commit: on the log before the call returns, and in what this ledger reads next.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._is_closed = False

    @property
    def _store(self) -> Store:
        if self._is_closed:
            msg = "the ledger is closed; open it again"
            raise LedgerClosedError(msg)
        return self._shared.store

    def _is_over(self) -> bool:
        return self._is_closed

    def graph(self, chat_id: str) -> Graph:
        """
        The whole DAG of a chat: all messages by `created_at` (ties in log order), branches and checkpoints.

        An unknown chat has none of them. Source: the LMDB index at `position`.
        """
        check_id(chat_id, "chat_id")
        with self._store.snapshot() as snapshot:
            chat = snapshot.chat(chat_id)
            if chat.record is None:
                return Graph(chat_id=chat_id, nodes=[], branches=[], checkpoints=[])
            messages = sorted(chat.chains.all_messages(), key=itemgetter(0))
            branches, checkpoints = chat.branches(), chat.checkpoints()
        return make_graph(chat_id, (message for _, message in messages), branches, checkpoints)

    @property
    def location(self) -> str:
        """Where the log is, without secrets."""
        return self._shared.location

    def close(self) -> None:
        """Close the ledger; calling it again does nothing. What was written stays."""
        if not self._is_closed:
            self._is_closed = True
            release(self._shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.location}{' (closed)' if self._is_closed else ''}>"
