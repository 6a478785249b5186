"""
Where a stream with several replicas ends, as a majority of them knows it.

A leader that was replaced does not know so for some seconds: until it hears a newer term, or for ten seconds without a majority.
Until then it answers what it is asked, such as `STREAM.INFO`, from its own store (nats-server, `jsStreamInfoRequest`: whoever
believes that it leads answers, and so does any member while no leader is known). What it says misses all that was acknowledged
since. So two things have to hold before a position is believed.

A request was committed after the question was asked. The deletion of position 0, which never holds a message, is one that
changes nothing: the leader proposes it to the Raft group of the stream without a look at its store (`jsClusteredMsgDeleteRequest`),
and answers when it is applied, so behind all that was acknowledged before (`applyStreamEntries`, `deleteMsgOp`: "no message
found"). A leader without a majority never answers it; where it reaches any member that knows the newer term, its own proposal
makes it resign. What else comes to mind is none: a publish with a wrong expectation is refused before it is proposed, one
with `Nats-Expected-Last-Msg-Id` makes replicas count a failed entry that they may miscount after a restart, a message would take
a position of the log, and streams and consumers are created by another Raft group than the one that stores the events.

And the leader that says where the stream ends heard from a majority since then (`active` of its replicas, which is 0 for those
it never heard of), as whoever committed that request did. For a login that may not delete this is all, and each member is heard
of once a second at least (`hbInterval`).
"""

import threading
import time
from typing import Final

import msgspec
from eventsourcing.persistence import OperationalError

from .client import Deadline, JetStreamClient
from .errors import ALREADY_DELETED, STORE_FAILED, ApiError, NotPermittedError
from .stream import StreamInfo
from .transport import Transport, ask_api

_NOTHING: Final = msgspec.json.encode({"seq": 0, "no_erase": True})
_AGAIN_S: Final = 0.02


class Barrier:
    """
    Finds out where a stream ends, behind all that was acknowledged before the call.

    Calls at the same time share one barrier, if it began after them.
    """

    def __init__(self, client: JetStreamClient, stream: str) -> None:
        self._client, self._stream = client, stream
        self._may_delete = True
        self._turn = threading.Lock()
        self._begun = self._passed = self._position = 0
        """The numbers of the last barrier that began and of the last that was passed, and the position behind that."""

    def position(self) -> int:
        """Return the last position. Raises `OperationalError`: no leader with a majority answered within the budget."""
        # One that is being passed now may miss what was acknowledged since it began.
        least = self._begun + 1
        with self._turn:
            # Somebody else may have passed one meanwhile that began after this call.
            if self._passed < least:
                self._begun += 1
                self._position = self._pass()
                self._passed = self._begun
            return self._position

    def _pass(self) -> int:
        deadline, began_s = self._client.deadline(), time.monotonic()
        if self._may_delete:
            try:
                self._client.retry(self._commit_nothing, deadline, doing=f"a majority of {self._stream}")
            except NotPermittedError:
                # A login without that right will not get it while it is open: asked once.
                self._may_delete = False
        while (last := self._last_since(began_s, deadline)) is None:
            if deadline.left_s < _AGAIN_S:
                msg = f"the leader of {self._stream} heard of no majority of its replicas within {self._client.timeout_s:g} s"
                raise OperationalError(msg)
            time.sleep(_AGAIN_S)
        return last

    def _commit_nothing(self, transport: Transport, ends_at: float) -> None:
        try:
            ask_api(transport, f"STREAM.MSG.DELETE.{self._stream}", _NOTHING, dict, ends_at)
        except ApiError as error:
            # The answers to a deletion that was committed and found nothing.
            if error.fault.err_code not in {STORE_FAILED, ALREADY_DELETED}:
                raise

    def _last_since(self, began_s: float, deadline: Deadline) -> int | None:
        """The last position, if a leader says it that heard from a majority since then."""
        oldest_ns = int((time.monotonic() - began_s) * 1e9)
        info = self._client.api(f"STREAM.INFO.{self._stream}", None, StreamInfo, deadline)
        group = info.cluster
        # 0 is said of a replica that this leader never heard of.
        heard = sum(0 < replica.active <= oldest_ns for replica in group.replicas)
        is_majority = heard + 1 > (len(group.replicas) + 1) // 2
        return info.state.last if group.leader and is_majority else None
