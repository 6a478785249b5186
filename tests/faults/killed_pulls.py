"""
Random schedules of ledgers that pull from each other, whose processes are killed and whose links break: `python -m tests.faults.killed_pulls FOLDER KIND SEED COUNT`.

Each life is a process that opens the ledgers, edits and pulls, and mostly dies within a call, Python's or of C, that the seed chooses. What
happened is printed as JSON: how many died, how many links broke, and the seeds after which the ledgers did not come to have the same.
"""

import json
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import count, permutations
from pathlib import Path
from typing import IO, Any, Final

from tests.support.sync_world import EDITS, LEDGERS, begin, edit, pull_until_quiet

import chatledger
from chatledger import Ledger
from chatledger.domain.legal_hold import LegalHold
from chatledger.errors import LogUnavailableError
from chatledger.importers import ImportedChat
from chatledger.infra.ledger.peers import ChatStanding, LedgerPeer

_LIVES: Final = 4
_STEPS: Final = 6
_BROKEN: Final = 7
"""Exit code of a process whose link broke; that of others is 0, or of their death."""


class FailingLink(LedgerPeer):
    """A ledger to which the link breaks with the n-th thing that is asked of it, a bundle in its middle."""

    def __init__(self, left: int, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._left = left

    def _pass(self) -> None:
        self._left -= 1
        if not self._left:
            msg = "the link broke"
            raise LogUnavailableError(msg)

    def standings(self, versions: Mapping[str, int]) -> dict[str, ChatStanding]:
        self._pass()
        return super().standings(versions)

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes], most: int) -> bool:
        is_whole = super().write_bundle(known, stream, most)
        stream.truncate(stream.tell() // 2 if self._left == 1 else None)
        self._pass()
        return is_whole

    def export_chat(self, chat_id: str, after: int = 0) -> ImportedChat:
        self._pass()
        return super().export_chat(chat_id, after)

    def holds(self, chat_ids: Any) -> list[LegalHold]:
        self._pass()
        return super().holds(chat_ids)


def _die_within(calls: int) -> None:
    """Kill this process after so many calls of functions, in whatever thread."""
    left = count(calls, -1)

    def passed(_frame: object, _event: str, _argument: object) -> None:
        if next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(passed)
    sys.setprofile(passed)


def _live(seed: str, opened: Callable[[ExitStack], dict[str, Ledger]]) -> None:
    chance = random.Random(seed)
    new = partial(next, map(f"-{seed}-".__add__, map(str, count())))
    with ExitStack() as stack:
        ledgers = opened(stack)
        for step in range(_STEPS):
            name, what, number = chance.choice(LEDGERS), chance.choice(EDITS), chance.randrange(10)
            if step == _STEPS - 1:
                what = "pull"
                if chance.random() < 0.8:
                    _die_within(int(10 ** chance.uniform(1, 4.5)))
            link = partial(FailingLink, chance.choice([1, 2, 3, 4, *[1_000] * 6]))
            edit(ledgers, name, what, number, new, link)


def _end(seed: str, opened: Callable[[ExitStack], dict[str, Ledger]]) -> None:
    order = list(permutations(LEDGERS, 2))
    random.Random(seed).shuffle(order)
    with ExitStack() as stack:
        pull_until_quiet(opened(stack), order)


def _forked(act: Callable[[], None]) -> int:
    """Do something in a process of its own; return its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        act()
        code = 0
    except LogUnavailableError:
        code = _BROKEN
    except BaseException:  # noqa: BLE001 - nothing may get into the loop of the parent
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def main(folder: str, kind: str, first: int, schedules: int) -> None:
    """Run so many schedules, and print what was seen."""
    seen: dict[str, Any] = {"schedules": 0, "killed": 0, "broken": 0, "failed": []}
    for seed in range(first, first + schedules):
        at = Path(folder, str(seed))
        at.mkdir()

        def opened(stack: ExitStack, at: Path = at) -> dict[str, Ledger]:
            locations = {name: f"sqlite:///{at}/{name}.db" if kind == "sqlite" else at / name for name in LEDGERS}
            return {name: stack.enter_context(closing(chatledger.open(locations[name]))) for name in LEDGERS}

        def start(opened: Callable[[ExitStack], dict[str, Ledger]] = opened) -> None:
            with ExitStack() as stack:
                begin(opened(stack))

        codes = [_forked(start)]
        codes += [_forked(partial(_live, f"{seed}.{life}", opened)) for life in range(_LIVES)]
        codes.append(_forked(partial(_end, str(seed), opened)))
        seen["schedules"] += 1
        seen["killed"] += codes.count(-signal.SIGKILL)
        seen["broken"] += codes.count(_BROKEN)
        if codes[0] or codes[-1] or 1 in codes:
            seen["failed"].append([seed, codes])
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
