"""Journal of a process on its acts on a ledger, kept outside of it: one file per process, synced line by line."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

import msgspec

Line = dict[str, Any]
Outcome = Literal["acknowledged", "refused", "unknown"]

INTENT: Final = "intent"
OUTCOMES: Final = ("acknowledged", "refused", "unknown")


class Journal:
    """Appends lines to a file; a line is on the disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **facts: Any) -> None:
        """Note something, with the time of a clock that all processes of the machine share."""
        line = json.dumps({"kind": kind, "at": time.monotonic(), **facts}, separators=(",", ":"))
        os.write(self._fd, line.encode() + b"\n")
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Operation(msgspec.Struct):
    """
    One operation as its journal tells it, all its repetitions taken together.

    `began` is when it was first tried, `acknowledged` when it was first said to have happened, with the answer of then.
    `refused` says that some attempt was refused and none was acknowledged or of unknown outcome.
    """

    command_id: str
    call: dict[str, Any]
    began: float
    acknowledged: float | None = None
    answer: Any = None
    answers: int = 0
    refusals: int = 0
    unknowns: int = 0
    attempts: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it may have happened or not: an attempt has no outcome, or an unknown one."""
        return self.acknowledged is None and self.attempts > self.refusals


def lines(path: Path) -> Iterator[Line]:
    """The lines of a journal; one that was cut short by a kill is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield cast("Line", json.loads(line))


def operations(path: Path) -> list[Operation]:
    """The operations in a journal, in the order in which they began."""
    found: dict[str, Operation] = {}
    for line in lines(path):
        command_id = str(line.get("command_id"))
        if line["kind"] == INTENT:
            one = found.setdefault(command_id, Operation(command_id, line["call"], line["at"]))
            one.attempts += 1
        elif line["kind"] in OUTCOMES:
            one = found[command_id]
            if line["kind"] == "acknowledged":
                one.answers += 1
                # What found nothing to do has no event that knows it, so its repetition is decided anew.
                if one.acknowledged is None or one.answer is False:
                    one.acknowledged, one.answer = line["at"], line["answer"]
                else:
                    assert one.answer == line["answer"], f"the repetition of {command_id} was answered otherwise"
            elif line["kind"] == "refused":
                one.refusals += 1
            else:
                one.unknowns += 1
    return list(found.values())
