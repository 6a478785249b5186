"""A process that writes to a ledger, notes what it was told, and may die at any moment."""

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from tests.faults.calls import BARE, OWNER, WEIGHTS, WRITTEN, Call, carry_out, content, draw
from tests.faults.deaths import Death, arm, server_pid
from tests.faults.journal import INTENT, Journal, operations

import chatledger
from chatledger import (
    AlreadyExistsError,
    ChatledgerError,
    ConflictError,
    InvalidValueError,
    Ledger,
    LogUnavailableError,
    NotFoundError,
)
from chatledger.errors import LedgerLockedError, LogFullError

REFUSALS: Final = (ConflictError, NotFoundError, AlreadyExistsError, InvalidValueError, LogFullError)
"""Errors that say that nothing was written."""
UNKNOWN: Final = (LogUnavailableError, LedgerLockedError)
"""Errors that leave open whether it was written."""


class Order(msgspec.Struct):
    """
    The orders of a writer.

    Args:
        location, index, durability: Of the ledger.
        folder: Where its journal goes.
        name: Of the writer, over all its lives.
        life: Which of its lives this is; with the name it makes ids unique.
        seed: What its choices follow from.
        stop: It ends when this file appears.
        chats: What it writes to; `mortal` ones are deleted now and then.
        weights: Of the kinds of calls, besides `rebuild`.
        death: Where it or its server dies.
        timeout_s: Of its operations.
        pace_s: A pause after each operation.
        is_full: The disk is full: a clear error ends an attempt, and is no failure.
        threads: So many write at the same time, each as a writer of its own with a journal of its own.
    """

    location: str
    folder: str
    name: str
    life: int
    seed: str
    stop: str
    chats: list[str]
    mortal: list[str]
    index: str | None = None
    durability: str = "always"
    weights: dict[str, int] = msgspec.field(default_factory=lambda: dict(WEIGHTS))
    death: tuple[str, int, str] | None = None
    timeout_s: float = 15.0
    pace_s: float = 0.0
    is_full: bool = False
    threads: int = 1


class Writer:
    """One life of a writer."""

    def __init__(self, order: Order, journal: Journal) -> None:
        self._order, self.journal = order, journal
        self._rng = Random(order.seed)
        self._count = 0
        self._parent = os.getppid()

    @property
    def is_over(self) -> bool:
        """Whether it was told to end, or nobody is left who could tell it."""
        return Path(self._order.stop).exists() or os.getppid() != self._parent

    def work(self, ledger: Ledger, left: Sequence[tuple[str, Call]], leave: threading.Event) -> None:
        """Repeat what an earlier life has left open, or leave it, and then write until the end, or until all shall leave."""
        for command_id, call in left:
            if self._rng.random() < 0.5:
                self._attempt(ledger, command_id, call)
        while not self.is_over and not leave.is_set():
            self._step(ledger)
            time.sleep(self._order.pace_s)

    def _step(self, ledger: Ledger) -> None:
        order = self._order
        self._count += 1
        command_id = f"{order.name}.{order.life}.{self._count}"
        chats = order.mortal if order.mortal and self._rng.random() < 0.25 else order.chats
        weights = dict(order.weights)
        if chats is not order.mortal:
            weights.pop("delete", None)
        if (kind := self._rng.choices(list(weights), list(weights.values()))[0]) == "rebuild":
            self._rebuild(ledger)
            return
        call = draw(self._rng, ledger, command_id, chats, {kind: 1})
        outcome = self._attempt(ledger, command_id, call)
        while outcome == "unknown" and not self.is_over and self._rng.random() < 0.8:
            outcome = self._attempt(ledger, command_id, call)
        if outcome == "acknowledged" and chats is not order.mortal:
            self._look(ledger, call)
            if call["kind"] in WRITTEN and self._rng.random() < 0.05:
                self._attempt(ledger, command_id, call)

    def _rebuild(self, ledger: Ledger) -> None:
        with contextlib.suppress(*UNKNOWN):
            ledger.rebuild()
            self.journal.write("rebuilt")

    def _attempt(self, ledger: Ledger, command_id: str, call: Call) -> str:
        try:
            if "chat" in call:
                ledger.upsert_chat(call["chat"], OWNER)
        except UNKNOWN:
            return "unknown"
        self.journal.write(INTENT, command_id=command_id, call=call)
        try:
            with ledger.context(actor=self._order.name, command_id=None if call["kind"] in BARE else command_id):
                answer = carry_out(ledger, call)
        except REFUSALS as error:
            outcome, facts = "refused", {"error": type(error).__name__}
        except UNKNOWN as error:
            outcome, facts = "unknown", {"error": str(error)}
        else:
            outcome, facts = "acknowledged", {"answer": answer}
        self.journal.write(outcome, command_id=command_id, **facts)
        return outcome

    def _look(self, ledger: Ledger, call: Call) -> None:
        """A writer sees what it wrote, at once."""
        for message_id in call.get("ids", ()):
            message = ledger.get_message(message_id)
            if message is None or not message.text.startswith(content(message_id)):
                self.journal.write("failure", error=f"{message_id} was acknowledged, and reads do not show it")


Hand = tuple[Writer, Sequence[tuple[str, Call]]]
"""A writer, and what its earlier lives have left open."""


def run(order: Order) -> None:
    """Live, until told to end or killed."""
    with contextlib.ExitStack() as journals:
        hands: list[Hand] = []
        for number in range(order.threads):
            name = f"{order.name}~{number}" if number else order.name
            path = Path(order.folder) / f"{name}.journal"
            left = [(one.command_id, one.call) for one in operations(path) if one.is_open][-2:] if path.exists() else []
            journal = journals.enter_context(Journal(path))
            own = msgspec.structs.replace(order, name=name, seed=f"{order.seed}~{number}")
            hands.append((Writer(own, journal), left))
        _live_on(order, hands)


def _live_on(order: Order, hands: Sequence[Hand]) -> None:
    writer = hands[0][0]
    journal = writer.journal
    if order.death is not None:
        arm(Death(*order.death), lambda death: journal.write("death", **death._asdict()), _server_of(order))
    while not writer.is_over:
        try:
            _live(order, hands)
        except UNKNOWN as error:
            journal.write("unavailable", error=str(error))
            time.sleep(0.05)
        except Exception as error:
            is_ours = isinstance(error, ChatledgerError)
            if is_ours and order.is_full:
                journal.write("unavailable", error=repr(error))
                time.sleep(0.05)
                continue
            journal.write("failure", error=repr(error) if is_ours else traceback.format_exc())
            raise


def _live(order: Order, hands: Sequence[Hand]) -> None:
    options: dict[str, Any] = {"durability": order.durability, "index": order.index, "timeout_s": order.timeout_s}
    leave = threading.Event()
    with chatledger.open(order.location, **options) as ledger:
        with ThreadPoolExecutor(len(hands)) as pool:
            others = [pool.submit(writer.work, ledger, left, leave) for writer, left in hands[1:]]
            try:
                writer, left = hands[0]
                writer.work(ledger, left, leave)
            finally:
                leave.set()
        for other in others:
            other.result()


def _server_of(order: Order) -> Any:
    return lambda: server_pid(Path(order.location))
