"""Server-sent events as a client reads them."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx


class Event(NamedTuple):
    """An event: its name (`message` where it has none), its id, and what its data says."""

    name: str
    id: str | None
    data: Any


@contextmanager
def events_of(
    client: httpx.Client, path: str, *, last_id: str | None = None, **query: Any
) -> Generator[Iterator[Event]]:
    """The events of an answer, as they come."""
    headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
    with client.stream("GET", path, params=query, headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
            msg = f"{answer.status_code}: {answer.text}"
            raise ValueError(msg)
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield read_events(answer.iter_lines())


def read_events(lines: Iterator[str]) -> Iterator[Event]:
    """Yield the events of lines; comments and `retry` are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield Event(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
            fields = {}
            continue
        name, _, value = line.partition(":")
        fields[name] = fields[name] + "\n" + value.removeprefix(" ") if name in fields else value.removeprefix(" ")
