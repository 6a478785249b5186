"""The outcome of each call of a program on a server, by name."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, cast

import httpx
from langgraph_sdk import get_client

from .canonical import Json, Names, canonical
from .servers import Server

PATIENCE_S: Final = 60
"""A call that takes longer ends the program: it hangs."""
NO_THREAD: Final = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
NO_CHECKPOINT: Final = "1ef00000-0000-6000-8000-000000000000"
HEADERS: Final = ("content-type", "location", "content-location", "x-pagination-total", "x-pagination-next")


def never(part: Any) -> bool:
    """Stay until the end."""
    del part
    return False


class Recorder:
    """
    The clients of a server, and what their calls led to.

    Attributes:
        server: Where the calls go.
        client: LangGraph's SDK.
        assistant_id: The id of the assistant that the graph has from the beginning: a UUID there, the name of the graph here.
        area: Of the program; the name of each call begins with it.
        outcomes: By the name of the call, in a canonical form.
    """

    def __init__(self, server: Server, assistant_id: str, area: str) -> None:
        self.server, self.assistant_id, self.area = server, assistant_id, area
        # A connection each: LangGraph's server closes one on which it failed, which the next call on it might notice or not.
        self.client = get_client(url=server.url, headers={"connection": "close"})
        self.outcomes: dict[str, Json] = {}
        self._http = httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, headers={"connection": "close"})

    async def call(self, name: str, awaitable: Awaitable[Any]) -> Any:
        """Record what a call returns or raises. Returns it, or None."""
        try:
            result = await asyncio.wait_for(awaitable, PATIENCE_S)
        except Exception as error:  # noqa: BLE001 - it is what is compared
            self.note(name, raised(error))
            return None
        self.note(name, {"result": result})
        return result

    async def stream(self, name: str, events: AsyncIterator[Any], *, until: Callable[[Any], bool] = never) -> None:
        """
        Record the events of a stream: their order, and their data by the names of the events.

        Args:
            name: Of the call.
            events: Of the SDK.
            until: Whether the client goes away after an event.
        """
        seen, failure = await read(events, until)
        data: dict[str, list[Json]] = {}
        for event in seen:
            data.setdefault(event.event, []).append(event.data)
        self.note(name, {"order": [event.event for event in seen], "data": data, **failure})

    async def chunks(self, name: str, chunks: AsyncIterator[Any]) -> None:
        """Record what an iterator yields."""
        seen, failure = await read(chunks)
        self.note(name, {"chunks": seen, **failure})

    async def http(self, name: str, method: str, path: str, *, body: bool = True, **options: Any) -> None:
        """Record the answer to a request; `options` as httpx has them. Without `body`, what it says is not compared."""
        response = await self._http.request(method, path, **options)
        outcome: dict[str, Json] = {"status": response.status_code}
        if response.is_success:
            outcome["headers"] = {header: response.headers[header] for header in HEADERS if header in response.headers}
        if response.is_success and body:
            is_json = response.headers.get("content-type") == "application/json"
            outcome["body"] = response.json() if is_json else response.text
        self.note(name, outcome)

    def note(self, name: str, outcome: Any) -> None:
        """Record an outcome."""
        name = f"{self.area}: {name}"
        assert name not in self.outcomes, f"two calls are called {name!r}"
        constant = {self.assistant_id: "<assistant>", NO_THREAD: "<no thread>", NO_CHECKPOINT: "<no checkpoint>"}
        self.outcomes[name] = canonical(plain(outcome), Names(constant, self.server.url))

    async def begun(self, gate: str) -> None:
        """Wait until a run holds at a gate."""
        async with asyncio.timeout(PATIENCE_S):
            while not (self.server.gates / f"{gate}.begun").exists():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)


async def read(parts: AsyncIterator[Any], until: Callable[[Any], bool] = never) -> tuple[list[Any], Mapping[str, Json]]:
    """Read an iterator to its end, or to a part after which the client goes away. Returns what it yielded, and the error that ended it."""
    seen: list[Any] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for part in parts:
                seen.append(part)
                if until(part):
                    break
    except Exception as error:  # noqa: BLE001 - it is what is compared
        return seen, raised(error)
    return seen, {}


def raised(error: Exception) -> dict[str, Json]:
    """Return an error as it is compared: its words are for people, unless they came from the graph."""
    if isinstance(error, TimeoutError):
        raise error
    response = getattr(error, "response", None)
    if response is not None:
        return {"raises": type(error).__name__, "status": response.status_code}
    return {"raises": type(error).__name__, "says": str(error)}


def plain(value: Any) -> Json:
    """Return objects of LangGraph as JSON has them."""
    if isinstance(value, Mapping):
        return {str(name): plain(field) for name, field in cast("Mapping[Any, Any]", value).items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(element) for element in cast("list[Any]", value)]
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
