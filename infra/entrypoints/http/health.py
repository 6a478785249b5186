"""Health and metrics of the server, for load balancers and monitoring."""

import time
from typing import Final

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute

from chatledger.domain.errors import ChatledgerError

from ...ledger.ledger import Ledger
from .limits import Limits
from .metrics import CONTENT_TYPE, Metrics
from .problems import RequestError
from .service import Service

_ANSWER_S: Final = 2.0
_KEEP_S: Final = 0.5
_ALIVE: Final = {"Cache-Control": "no-store"}


class Health:
    """
    Answers for `/livez`, `/readyz`, `/healthz` and `/metrics`.

    Args:
        service: State that the routes share.
        limits: The events that the index may be behind.
        metrics: Counts of requests.
    """

    def __init__(self, service: Service, limits: Limits, metrics: Metrics) -> None:
        self._service, self._limits, self._metrics = service, limits, metrics
        self._asking = anyio.Lock()
        self._positions = (0, 0)
        self._asked_at = float("-inf")

    def paths(self) -> list[PathRoute]:
        """Return the paths of these answers."""
        return [
            PathRoute("/livez", self.live),
            PathRoute("/readyz", self.ready),
            PathRoute("/healthz", self.ready),
            PathRoute("/metrics", self.metrics),
        ]

    async def live(self, _: Request) -> Response:
        """Answer that the process is alive."""
        return Response(msgspec.json.encode({"status": "alive"}), 200, _ALIVE, "application/json")

    async def ready(self, _: Request) -> Response:
        """
        Answer that reads and writes work: the log answers, and the index is not too far behind.

        Raises:
            RequestError: They do not.
        """
        if self._service.stopping.is_set():
            msg = "the server stops"
            raise RequestError(503, msg, name="NotReady")
        log_position, index_position = await self._ask()
        behind = log_position - index_position
        if behind > self._limits.lag_events:
            msg = f"the index is {behind:,} events behind the log; it catches up"
            raise RequestError(503, msg, name="NotReady")
        return Response(msgspec.json.encode({"status": "ready"}), 200, _ALIVE, "application/json")

    async def metrics(self, request: Request) -> Response:
        """
        Return the metrics.

        Raises:
            RequestError: The caller has not the scope `admin`, or the log does not answer.
        """
        await self._service.permitted(request, "admin")
        log_position, index_position = await self._ask()
        pending = await self._service.ledger.erasures(is_pending=True)
        waits_s = max((time.time() - erasure.deleted_at / 1000 for erasure in pending), default=0.0)
        text = self._metrics.text(
            log_position=log_position,
            index_position=index_position,
            pending_erasures=len(pending),
            oldest_erasure_s=max(waits_s, 0.0),
        )
        return Response(text, 200, {"Content-Type": CONTENT_TYPE})

    async def _ask(self) -> tuple[int, int]:
        """The last position on the log, and that of the index; the ledger is asked at most twice a second."""
        # Anybody may ask whether a server is ready, without a limit, and each question may be one to a log elsewhere.
        async with self._asking:
            if time.monotonic() - self._asked_at > _KEEP_S:
                try:
                    with anyio.fail_after(_ANSWER_S):
                        # Abandoned: load balancers give up within seconds, and a log that hangs holds its thread for longer.
                        self._positions = await self._service.ledger.run(_positions, abandon_on_cancel=True)
                except (TimeoutError, ChatledgerError) as error:
                    msg = "the log does not answer"
                    raise RequestError(503, msg, name="NotReady") from error
                self._asked_at = time.monotonic()
            return self._positions


def _positions(ledger: Ledger) -> tuple[int, int]:
    last = ledger.last_position()
    return last, ledger.get_position()
