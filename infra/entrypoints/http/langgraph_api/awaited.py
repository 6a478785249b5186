"""Answers that take their time: white space keeps the connection open until the JSON value is there."""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chatledger.domain.errors import ChatledgerError

from ..routing import JSON
from ..server_sent_events import ABORT
from .encoding import encode
from .run_records import failure

HEARTBEAT_S: Final = 5.0


class AwaitedAnswer(Response):
    """
    An answer with what a coroutine gives; or with `__error__`, where the coroutine raises an error of the ledger.

    When the server stops before that, the connection is closed without an end, so that clients come back to `Location`.

    Args:
        result: Gives the value.
        stopping: Set when the server stops.
        headers: More headers.
        gone: Called when the client goes before the value is there.
    """

    def __init__(
        self,
        result: Coroutine[Any, Any, Any],
        *,
        stopping: anyio.Event,
        headers: dict[str, str],
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(None, 200, headers, JSON)
        del self.headers["content-length"]  # Starlette sets that of a body, which is not known yet
        self._result, self._stopping, self._gone = result, stopping, gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send white space, then the value."""
        answer: bytes | None = None
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            answer = await self._awaited(receive, send)
        finally:
            self._result.close()
            if answer is None and self._gone is not None and not self._stopping.is_set():
                with anyio.CancelScope(shield=True), suppress(ChatledgerError):
                    await self._gone()
        if answer is not None:
            await send({"type": "http.response.body", "body": answer, "more_body": False})
        elif self._stopping.is_set():
            abort = scope.get("extensions", {}).get(ABORT)
            if abort is not None:
                abort()

    async def _awaited(self, receive: Receive, send: Send) -> bytes | None:
        """Return the value; None where the client went, or the server stops."""
        answer: bytes | None = None
        async with anyio.create_task_group() as group:

            async def end_when_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            async def end_when_stopping() -> None:
                await self._stopping.wait()
                group.cancel_scope.cancel()

            async def beat() -> None:
                while True:
                    await anyio.sleep(HEARTBEAT_S)
                    await send({"type": "http.response.body", "body": b"\n", "more_body": True})

            group.start_soon(end_when_gone)
            group.start_soon(end_when_stopping)
            group.start_soon(beat)
            try:
                answer = encode(await self._result)
            except ChatledgerError as error:
                answer = encode({"__error__": failure(error)})
            group.cancel_scope.cancel()
        return answer
