"""A client of a cluster under faults: writers, a reader, two feeds; each call is in its journal before and after it."""

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from tests.faults.journal import Journal

import chatledger
from chatledger import ChatledgerError, Ledger, LogUnavailableError, NewMessage
from chatledger.errors import LogFullError

REGISTERS: Final = ("register-0", "register-1")
SHARED: Final = ("shared-0", "shared-1", "shared-2")
COUNTERS: Final = ("counter-0", "counter-1")
_WRITERS: Final = 3
_PAUSE_S: Final = 0.05


class ClientOrder(msgspec.Struct):
    """
    The orders of a client.

    Args:
        location, index: Of the ledger.
        folder: Where its journals go; it ends when `stop` appears there.
        name, life: With both its ids are unique.
        seed: What its choices follow from.
        skew_s: How much its wall clock is off.
    """

    location: str
    index: str
    folder: str
    name: str
    life: int
    seed: str
    skew_s: float = 0.0


class Client:
    """One life of a client."""

    def __init__(self, order: ClientOrder) -> None:
        self._order, self._folder = order, Path(order.folder)
        self._journal = Journal(self._folder / f"{order.name}.journal")
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._ledger = self._open()

    def _open(self) -> Ledger:
        while True:
            try:
                return chatledger.open(self._order.location, timeout_s=20, index=self._order.index)
            except ChatledgerError as error:
                self._journal.write("unopened", error=repr(error))
                time.sleep(1)

    def run(self) -> None:
        """Work until told to end."""
        threads = [threading.Thread(target=self._write, args=(number,), daemon=True) for number in range(_WRITERS)]
        threads.append(threading.Thread(target=self._read, daemon=True))
        for thread in threads:
            thread.start()
        for name in (None, f"feed-{self._order.name}"):
            threading.Thread(target=self._follow, args=(name,), daemon=True).start()
        while not (self._folder / "stop").exists():
            time.sleep(0.2)
        self._stop.set()
        for thread in threads:
            thread.join(90)
        self._ledger.close()
        self._journal.write("closed")

    def _call(self, op: str, chat: str, work: Callable[[], Any], ids: list[str] | None = None) -> None:
        number = f"{self._order.name}.{self._order.life}.{next(self._numbers)}"
        self._journal.write("call", number=number, op=op, chat=chat, ids=ids or [])
        outcome, facts = "acknowledged", {}
        try:
            answer = work()
            if op == "read":
                facts = {"answer": answer}
        except LogFullError as error:
            outcome, facts = "refused", {"error": repr(error)}
        except LogUnavailableError as error:
            outcome, facts = "unknown", {"error": repr(error)}
        except ChatledgerError as error:
            outcome, facts = "refused", {"error": repr(error)}
        except Exception as error:  # noqa: BLE001 - the judge reports it
            outcome, facts = "alien", {"error": repr(error)}
        self._journal.write(outcome, number=number, **facts)

    def _write(self, number: int) -> None:
        order, ledger = self._order, self._ledger
        dice, own = Random(f"{order.seed}/{number}"), f"own-{order.name}-{number}"
        while not self._stop.is_set():
            mark = f"{order.name}.{order.life}.{number}.{next(self._numbers)}"
            roll = dice.random()
            if roll < 0.4:
                self._set_register(dice.choice(REGISTERS), mark)
            elif roll < 0.55:
                self._append(dice, dice.choice(SHARED), mark)
            elif roll < 0.65:
                chat = dice.choice(SHARED)
                self._call("branch", chat, partial(_branch, ledger, dice, chat))
            elif roll < 0.78:
                chat = dice.choice(COUNTERS)
                self._call("count", chat, partial(ledger.update_chat, chat, updater=_one_more))
            elif roll < 0.96:
                self._call("own", own, partial(self._append_to_own, own, mark), [mark])
            else:
                self._call("delete", own, partial(ledger.delete_chat, own))
            self._stop.wait(dice.random() * _PAUSE_S)

    def _set_register(self, chat: str, mark: str) -> None:
        def work() -> None:
            main = self._ledger.get_branch(chat, "main")
            head = None if main is None else main.head_message_id
            self._ledger.append(chat, [NewMessage("user", mark, id=mark)], branch="main", expected_head=head)

        self._call("register", chat, work, [mark])

    def _append(self, dice: Random, chat: str, mark: str) -> None:
        ids = [f"{mark}-{number}" for number in range(dice.randint(1, 4))]
        filler = "x" * dice.choice([1, 1, 50, 2000, 40_000, 400_000 if dice.random() < 0.1 else 10])
        messages = [NewMessage("user", message_id + filler, id=message_id) for message_id in ids]
        self._call("append", chat, partial(self._ledger.append, chat, messages), ids)

    def _append_to_own(self, own: str, mark: str) -> None:
        self._ledger.upsert_chat(own, self._order.name)
        self._ledger.append(own, [NewMessage("user", mark, id=mark)])

    def _read(self) -> None:
        dice = Random(f"{self._order.seed}/read")
        while not self._stop.wait(0.3):
            chat = dice.choice(REGISTERS)

            def work(chat: str = chat) -> int:
                self._ledger.sync()
                return len(self._ledger.get_messages(chat, branch="main", limit=None))

            self._call("read", chat, work)

    def _follow(self, name: str | None) -> None:
        """Note each event of a feed. A nameless one begins anew after an error, in a file of its own."""
        order = self._order
        for number in itertools.count():
            kind = "named" if name else f"{order.life}.{number}"
            with (self._folder / f"{order.name}.{kind}.feed").open("a", buffering=1) as file:
                try:
                    for recorded in self._ledger.feed(name=name) if name else self._ledger.feed(after=0):
                        file.write(f"{recorded.position} {recorded.hash.hex()[:16]} {recorded.chat_id}\n")
                except LogUnavailableError:
                    pass
                except Exception as error:  # noqa: BLE001 - the judge reports it
                    if not self._stop.is_set():
                        self._journal.write("feed failed", error=repr(error))
            if self._stop.wait(0.5):
                return


def _one_more(chat: Any) -> dict[str, Any]:
    metadata = chat.metadata or {}
    return {"metadata": {**metadata, "count": metadata.get("count", 0) + 1}}


def _branch(ledger: Ledger, dice: Random, chat: str) -> None:
    """Fork, move, mark or switch: what is judged is that all indexes agree on it."""
    messages = ledger.get_messages(chat, limit=20)
    if not messages:
        return
    message_id, act = dice.choice(messages).id, dice.randrange(4)
    if act == 0:
        ledger.fork(chat, message_id)
    elif act == 1:
        branch = ledger.get_active_branch(chat)
        assert branch is not None
        ledger.move_head(chat, branch.name, message_id, expected=branch.head_message_id, on_conflict="return")
    elif act == 2:
        ledger.set_checkpoint(chat, dice.choice("abc"), message_id)
    else:
        ledger.set_active_branch(chat, dice.choice(ledger.list_branches(chat)).name)


def main(raw: str) -> None:
    """Follow an order."""
    order = msgspec.json.decode(raw, type=ClientOrder)
    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + order.skew_s
    time.time_ns = lambda: wall_ns() + int(order.skew_s * 10**9)
    Client(order).run()
    os._exit(0)  # feeds may still wait for a server


if __name__ == "__main__":
    main(sys.argv[1])
