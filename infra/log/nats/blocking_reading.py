"""Read pages of a stream over a blocking connection."""

import re
import time
from typing import Final

import msgspec

from .blocking_connection import Answer, BlockingConnection, ConnectionBrokenError
from .client import JetStreamClient
from .reading import PAGE, PAGE_BYTES, PAGE_S, TOPIC, VERSION, LogMessage

_NONE_THERE: Final = b"NATS/1.0 404"
_ALL_SENT: Final = b"NATS/1.0 204"
_OURS: Final = re.compile(
    rb"NATS/1\.0\r\nNats-Msg-Id: [!-~]*\r\nCl-Topic: ([!-~]*)\r\nCl-Version: (\d+)\r\n"
    rb"(?:Nats-[!-~]*: [!-~]*\r\n)*Nats-Subject: ([!-~]*)\r\nNats-Sequence: (\d+)\r\n(?:Nats-[!-~]*: [!-~]*\r\n)*\r\n"
)
"""The headers of an event as we write them and servers extend them. Other headers are parsed field by field."""


def read_blocking(
    client: JetStreamClient, stream: str, *, after: int, limit: int, is_one_answer: bool = False
) -> list[LogMessage] | None:
    """
    Return the next messages above a position, at most `limit`; None when the blocking connection cannot serve them.

    With `is_one_answer` only those of one answer of the server, about `PAGE_BYTES`. For streams with one replica only: other
    replicas may be behind.
    """
    connection = client.acquire_blocking_connection()
    if connection is None:
        return None
    is_sound = False
    try:
        found = _read(connection, stream, after, limit, is_one_answer=is_one_answer)
        is_sound = True
    except ConnectionBrokenError:
        return None
    finally:
        client.release_blocking_connection(is_sound=is_sound)
    return found


def _read(
    connection: BlockingConnection, stream: str, after: int, limit: int, *, is_one_answer: bool
) -> list[LogMessage] | None:
    subject, found, last = f"$JS.API.DIRECT.GET.{stream}", list[LogMessage](), after
    while len(found) < limit:
        count = min(limit - len(found), PAGE)
        question = msgspec.json.encode({"seq": max(last + 1, 1), "batch": count, "max_bytes": PAGE_BYTES})
        raw, (status, _) = connection.collect(subject, question, time.monotonic() + PAGE_S)
        if status.startswith(_NONE_THERE):
            break
        if not status.startswith(_ALL_SENT):
            return None
        page = [_message(answer) for answer in raw]
        positions: list[int] = [message.position for message in page]
        assert all(a < b for a, b in zip([last, *positions], positions, strict=False)), "pages are in order"
        found += page
        last = positions[-1] if positions else last
        if (is_one_answer and page) or _fields(status).get("Nats-Num-Pending") == "0":
            break
        if not page:
            return None
    return found


def _message(answer: Answer) -> LogMessage:
    found = _OURS.fullmatch(answer[0])
    if found is not None:
        topic, version, subject, position = found.groups()
        fields = {TOPIC: topic.decode(), VERSION: version.decode()}
        return LogMessage(int(position), subject.decode(), fields, answer[1])
    headers = _fields(answer[0])
    return LogMessage(int(headers["Nats-Sequence"]), headers["Nats-Subject"], headers, answer[1])


def _fields(headers: bytes) -> dict[str, str]:
    lines = headers.decode(errors="replace").split("\r\n")[1:-2]
    try:
        return dict([connection.split(": ", 1) for connection in lines])  # as everybody writes them
    except ValueError:
        return {name: value.strip() for name, _, value in (connection.partition(":") for connection in lines)}
