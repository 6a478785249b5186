"""Reading pages of a stream over a line."""

import re
import time
from typing import Final

import msgspec

from .blocking_connection import Answer, Line, LineBrokenError
from .client import JetStreamClient
from .reading import PAGE, PAGE_BYTES, PAGE_S, TOPIC, VERSION, LogMessage

_NONE_THERE: Final = b"NATS/1.0 404"
_ALL_SENT: Final = b"NATS/1.0 204"
_OURS: Final = re.compile(
    rb"NATS/1\.0\r\nNats-Msg-Id: [!-~]*\r\nCl-Topic: ([!-~]*)\r\nCl-Version: (\d+)\r\n"
    rb"(?:Nats-[!-~]*: [!-~]*\r\n)*Nats-Subject: ([!-~]*)\r\nNats-Sequence: (\d+)\r\n(?:Nats-[!-~]*: [!-~]*\r\n)*\r\n"
)
"""The headers of an event as we write them, and as servers add to them. What looks else is taken apart field by field."""


def read_over_line(
    client: JetStreamClient, stream: str, *, after: int, limit: int, is_one_answer: bool = False
) -> list[LogMessage] | None:
    """
    The next messages above a position, as many as there are up to `limit`; None when they are to be read otherwise.

    With `is_one_answer` only those that the server sends at once, which is about `PAGE_BYTES`. Only for streams with one replica:
    others may be behind.
    """
    line = client.borrow_line()
    if line is None:
        return None
    is_sound = False
    try:
        found = _read(line, stream, after, limit, is_one_answer=is_one_answer)
        is_sound = True
    except LineBrokenError:
        return None
    finally:
        client.give_back_line(is_sound=is_sound)
    return found


def _read(line: Line, stream: str, after: int, limit: int, *, is_one_answer: bool) -> list[LogMessage] | None:
    subject, found, last = f"$JS.API.DIRECT.GET.{stream}", list[LogMessage](), after
    while len(found) < limit:
        count = min(limit - len(found), PAGE)
        question = msgspec.json.encode({"seq": max(last + 1, 1), "batch": count, "max_bytes": PAGE_BYTES})
        raw, (status, _) = line.collect(subject, question, time.monotonic() + PAGE_S)
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
        return dict([line.split(": ", 1) for line in lines])  # as everybody writes them
    except ValueError:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
