"""The world of tests of proofs: a ledger with everything in it, and somebody who changes its files."""

import shutil
import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.support.salts import salts

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.admin import Anchor, Verification
from chatledger.domain.log.codec import decode_event, encode_event
from chatledger.domain.log.parts import event_hash

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


def pem_of(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem_of(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def say(content: str, **rest: Any) -> NewMessage:
    return NewMessage("user", content, **rest)


def fill(ledger: Ledger, *, chats: str = "abc", messages: int = 6) -> None:
    """Chats with every kind of event, written in turns; one of them is deleted, and begins anew."""
    for name in chats:
        ledger.create_chat(name, "ada", title=f"about {name}", metadata={"n": 1, "flag": True})
    for number in range(messages):
        for name in chats:
            ledger.append(name, [say(f"message {number} of {name}, about leeks"), say("and markets")])
    for name in chats:
        first = ledger.get_messages(name)[0].id
        ledger.fork(name, first)
        parts = [
            {"type": "reasoning", "text": "perhaps leeks"},
            {"type": "tool-x", "toolCallId": "1", "input": {"about": "leeks"}, "output": ["leeks", 12]},
            {"type": "text", "text": "on the side"},
        ]
        ledger.append(name, [NewMessage("assistant", {"parts": parts})])
        ledger.set_active_branch(name, "main")
        ledger.create_branch(name, "empty", None)
        ledger.move_head(name, "empty", first, expected=None)
        ledger.set_checkpoint(name, "one", first)
        ledger.set_checkpoint(name, "two", first)
        ledger.delete_checkpoint(name, "two")
        ledger.add_messages(name, [say("another root", parent_id=None)])
        with ledger.context(actor="bob", command_id="c1"):
            ledger.update_chat(name, title=f"new {name}")
    ledger.create_chat("gone", "bob")
    ledger.append("gone", [say("a secret")])
    ledger.delete_chat("gone")
    ledger.create_chat("gone", "bob")
    ledger.append("gone", [say("again")])
    ledger.create_chat("last", "ada")


class SqliteFile:
    """The file of a log, to be changed by hand while no ledger has it open."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"

    @property
    def location(self) -> str:
        return f"sqlite:///{self.path}"

    def execute(self, statement: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def rows(self) -> list[tuple[int, str, int, str, bytes]]:
        """Position, chat, version, topic, state."""
        return self.execute(
            "SELECT rowid, originator_id, originator_version, topic, state FROM standing_events ORDER BY rowid"
        )

    def swap(self, one: int, other: int) -> None:
        """Let two events change places."""
        for at, to in ((one, -1), (other, one), (-1, other)):
            self.execute("UPDATE stored_events SET rowid = ? WHERE rowid = ?", to, at)

    def drop(self, position: int) -> None:
        self.execute("DELETE FROM stored_events WHERE rowid = ?", position)

    def drop_index(self) -> None:
        """As somebody does who has the log, and lets the index be built anew from it; no witness knows how far it went."""
        for name in ("index", "witness"):
            shutil.rmtree(self.path.with_name(f"{self.path.name}-{name}"))

    def rewrite(self, chat_id: str, old: bytes, new: bytes) -> None:
        """Change what a chat says, and compute all hashes of the chat anew: the perfect forgery."""
        previous: bytes | None = None
        for position, chat, _, topic, state in self.rows():
            if chat != chat_id:
                continue
            event = decode_event(topic, state.replace(old, new))
            if previous is not None:
                event = msgspec.structs.replace(event, previous_hash=previous)
            changed = encode_event(event, salts()).state
            previous = event_hash(changed)
            self.execute("UPDATE stored_events SET state = ? WHERE rowid = ?", changed, position)


def verify_at(location: str, anchor: Anchor | None = None) -> Verification:
    """Open a ledger and verify it."""
    with chatledger.open(location) as ledger:
        return ledger.verify(anchor=anchor)


@contextmanager
def writing(ledger: Ledger) -> Generator[list[BaseException]]:
    """Somebody creates, fills and deletes chats all the while; gives what went wrong."""
    over, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        number = 0
        try:
            while not over.is_set():
                number += 1
                name = f"busy {number % 7}"
                ledger.upsert_chat(name, "eve")
                ledger.append(name, [say(f"word{number} and more") for _ in range(3)])
                if number % 3 == 0:
                    ledger.delete_chat(f"busy {(number - 2) % 7}")
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield failed
    finally:
        over.set()
        thread.join()
