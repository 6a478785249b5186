"""Health of the server for load balancers, and its metrics in the text format of Prometheus, added up over all its processes."""

import os
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute

from chatledger.domain.errors import ChatledgerError

from ...ledger.ledger import Ledger
from ...operating_system import is_running, private, replace
from .guard import Limits
from .problems import RequestError
from .service import Service

_ANSWER_S: Final = 2.0
_KEEP_S: Final = 0.5
_ALIVE: Final = {"Cache-Control": "no-store"}
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
WRITE_EVERY_S: Final = 1.0
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_DURATION: Final = "chatledger_http_request_duration_seconds"
_HELP: Final[Mapping[str, tuple[str, str]]] = {
    _DURATION: ("histogram", "Time until a request was answered; of a stream, until it began."),
    "chatledger_conflicts_total": ("counter", "Requests that lost against another writer."),
    "chatledger_requests_refused_total": ("counter", "Requests refused because of a limit."),
    "chatledger_sse_clients": ("gauge", "Open streams of server-sent events."),
    "chatledger_log_position": ("gauge", "Position of the last event on the log."),
    "chatledger_index_position": ("gauge", "Position up to which reads know everything."),
    "chatledger_index_lag_events": ("gauge", "Events on the log that reads do not know yet."),
    "chatledger_pending_erasures": ("gauge", "Deletions whose bytes are still to be erased."),
    "chatledger_oldest_pending_erasure_seconds": ("gauge", "How long the oldest of them has waited."),
}


class _Samples(msgspec.Struct):
    """Samples of one process: those that only grow, and those that end with it."""

    counted: dict[str, float]
    gauges: dict[str, float]


class Metrics:
    """
    Counts of this process, and of others that write theirs to the same folder.

    Args:
        folder: Where each process of a server writes its counts once a second; None where there is only one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder: Final = folder
        self._durations: defaultdict[tuple[str, str, int], list[float]] = defaultdict(
            lambda: [0.0] * (len(SECONDS) + 2)
        )
        self._counts: Counter[str] = Counter()
        self.sse_clients = 0

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        buckets = self._durations[method, route, status]
        buckets[bisect_left(SECONDS, seconds)] += 1
        buckets[-1] += seconds
        if status in {429, 431}:
            self._counts[f'chatledger_requests_refused_total{{status="{status}"}}'] += 1

    def conflict(self, error: str) -> None:
        """Count a write that lost against another one."""
        self._counts[f'chatledger_conflicts_total{{error="{error}"}}'] += 1

    def write(self) -> None:
        if self.folder is None:
            return
        # Replaced as a whole, as the others read it at any moment.
        path = self.folder / f"{os.getpid()}.json"
        fresh = path.with_suffix(".new")
        with open(fresh, "wb", opener=private) as file:
            file.write(msgspec.json.encode(self._own()))
        replace(fresh, path)

    async def write_often(self) -> None:
        """Write the counts of this process in time, whether or not requests come."""
        while True:
            self.write()
            await anyio.sleep(WRITE_EVERY_S)

    def text(
        self, *, log_position: int, index_position: int, pending_erasures: int = 0, oldest_erasure_s: float = 0.0
    ) -> str:
        """Return everything, as Prometheus reads it. The oldest of the pending erasures was asked for so many seconds ago."""
        samples: Counter[str] = Counter()
        for process in self._all():
            samples.update(process.counted)
            samples.update(process.gauges)
        values: dict[str, float] = {
            **samples,
            "chatledger_log_position": log_position,
            "chatledger_index_position": index_position,
            "chatledger_index_lag_events": max(0, log_position - index_position),
            "chatledger_pending_erasures": pending_erasures,
            "chatledger_oldest_pending_erasure_seconds": oldest_erasure_s,
        }
        by_name: defaultdict[str, list[str]] = defaultdict(list)
        for sample, value in values.items():
            name = sample.partition("{")[0]
            for ending in ("_bucket", "_sum", "_count"):
                if name.removesuffix(ending) == _DURATION:
                    name = _DURATION
            by_name[name].append(f"{sample} {value:.10g}")
        lines: list[str] = []
        for name, (kind, words) in _HELP.items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *by_name[name]]
        return "\n".join(lines) + "\n"

    def _own(self) -> _Samples:
        counted: dict[str, float] = dict(self._counts)
        for (method, route, status), buckets in self._durations.items():
            escaped = route.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            labels = f'method="{method}",route="{escaped}",status="{status}"'
            total = 0.0
            for bound, count in zip((*SECONDS, "+Inf"), buckets, strict=False):  # the last of them is the sum
                total += count  # buckets of Prometheus are cumulative
                counted[f'{_DURATION}_bucket{{{labels},le="{bound}"}}'] = total
            counted[f"{_DURATION}_count{{{labels}}}"] = total
            counted[f"{_DURATION}_sum{{{labels}}}"] = buckets[-1]
        return _Samples(counted, {"chatledger_sse_clients": self.sse_clients})

    def _all(self) -> Iterable[_Samples]:
        yield self._own()
        if self.folder is None:
            return
        for path in self.folder.glob("*.json"):
            if path.stem == str(os.getpid()):
                continue
            with suppress(OSError, msgspec.DecodeError):
                others = msgspec.json.decode(path.read_bytes(), type=_Samples)
                if not is_running(int(path.stem)):
                    # Counts of a process that ended stay: Prometheus takes a counter that falls for a restart. Its open streams go.
                    others.gauges.clear()
                yield others


class Health:
    """Answers for `/livez`, `/readyz`, `/healthz` and `/metrics`."""

    def __init__(self, service: Service, limits: Limits, metrics: Metrics) -> None:
        self._service, self._limits, self._metrics = service, limits, metrics
        self._asking = anyio.Lock()
        self._positions = (0, 0)
        self._asked_at = float("-inf")

    def paths(self) -> list[PathRoute]:
        return [
            PathRoute("/livez", self.live),
            PathRoute("/readyz", self.ready),
            PathRoute("/healthz", self.ready),
            PathRoute("/metrics", self.metrics),
        ]

    async def live(self, _: Request) -> Response:
        return Response(msgspec.json.encode({"status": "alive"}), 200, _ALIVE, "application/json")

    async def ready(self, _: Request) -> Response:
        """Answer that reads and writes work, the log answers and the index is not too far behind; or refuse."""
        if self._service.stopping.is_set():
            raise RequestError(503, "the server stops", name="NotReady")
        log_position, index_position = await self._ask()
        behind = log_position - index_position
        if behind > self._limits.lag_events:
            raise RequestError(503, f"the index is {behind:,} events behind the log; it catches up", name="NotReady")
        return Response(msgspec.json.encode({"status": "ready"}), 200, _ALIVE, "application/json")

    async def metrics(self, request: Request) -> Response:
        """Return the metrics, to who has the scope `admin`."""
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
                    raise RequestError(503, "the log does not answer", name="NotReady") from error
                self._asked_at = time.monotonic()
            return self._positions


def _positions(ledger: Ledger) -> tuple[int, int]:
    last = ledger.last_position()
    return last, ledger.get_position()
