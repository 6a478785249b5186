"""Erasures in any order with everything else: of what was to go no file has a byte, and all else reads as before."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.files_in_clear import files_with
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.admin import restore
from chatledger.errors import HeldError
from chatledger.importers import ImportedChat

USERS = ("ada.l@example", "bob.b@example")
LATE = 2**42
STEPS = (
    *("append", "append", "fork", "retitle", "redact", "redact", "redact words", "erase", "erase with a pseudonym"),
    *("sweep", "sweep content", "hold", "release", "export", "import", "backup", "move"),
)


class Story:
    """
    A ledger, and what it should say: the word of each message by its id, None where that is gone, in chats by their ids.

    Each word is said once, and stands in copies of its message besides. Of a title the words of before stay until they are redacted.
    """

    def __init__(self, folder: Path, *, is_directory: bool) -> None:
        self.folder, self.is_directory, self.moves, self.count = folder, is_directory, 0, 0
        self.owners: dict[str, str] = {}
        self.titles: dict[str, list[str]] = {}
        self.words: dict[str, dict[str, str | None]] = {}
        self.senders: dict[str, str | None] = {}
        self.copies: dict[str, str] = {}
        self.held: set[str] = set()
        self.exported: list[tuple[ImportedChat, str, dict[str, str | None], dict[str, str | None]]] = []
        self.ledger = self.open()

    @property
    def place(self) -> Path:
        return self.folder / str(self.moves)

    @property
    def location(self) -> str:
        return str(self.place / "data") if self.is_directory else f"sqlite:///{self.place / 'log.db'}"

    def open(self) -> Ledger:
        self.place.mkdir(exist_ok=True)
        return chatledger.open(self.location, erase="soon")

    def step(self, name: str, number: int) -> None:
        owner = USERS[number % 2]
        chat_id = [*self.owners, ""][number % (len(self.owners) + 1)]
        match name:
            case "append":
                self.append(chat_id, owner)
            case "fork" if self.words.get(chat_id):
                self.fork(chat_id, owner)
            case "redact" if self.words.get(chat_id):
                self.redact(chat_id, [*self.words[chat_id]][number % len(self.words[chat_id])])
            case "retitle" if chat_id:
                self.ledger.update_chat(chat_id, title=self.new_title(chat_id))
            case "redact words" if chat_id:
                self.redact_words(chat_id)
            case "erase":
                self.ledger.erase_user(owner)
                self.delete(owner)
            case "erase with a pseudonym":
                self.ledger.erase_user(owner, pseudonym="someone")
                self.delete(owner)
                for message_id in self.named(owner):
                    self.senders[message_id] = "someone"
            case "sweep" | "sweep content":
                self.sweep(owner, is_content=name != "sweep")
            case "hold" if chat_id:
                self.ledger.hold("chat", chat_id)
                self.held.add(chat_id)
            case "release" if chat_id:
                self.ledger.release("chat", chat_id)
                self.held.discard(chat_id)
            case "export" if chat_id:
                words = self.words[chat_id]
                kept = (self.owners[chat_id], {**words}, {one: self.senders[one] for one in words})
                self.exported.append((self.ledger.export_chat(chat_id), *kept))
            case "import" if self.exported:
                exported = self.exported[number % len(self.exported)]
                self.take_in(*exported, on_change="skip" if number % 2 else "version")
            case "backup":
                self.ledger.backup(self.folder / "backup")
            case "move":
                self.move()
            case _:
                pass

    def append(self, chat_id: str, owner: str) -> None:
        self.count += 1
        if not chat_id:
            chat_id = f"c{self.count}"
            self.ledger.create_chat(chat_id, owner, title=self.new_title(chat_id))
            self.owners[chat_id], self.words[chat_id] = owner, {}
        for sender in USERS:
            message_id, word = f"m{self.count}-{sender[0]}", f"w{self.count}{sender[0]}kohlrabi"
            self.ledger.append(chat_id, [NewMessage("user", f"say {word}", id=message_id, sender_id=sender)])
            self.words[chat_id][message_id], self.senders[message_id] = word, sender

    def new_title(self, chat_id: str) -> str:
        self.count += 1
        self.titles.setdefault(chat_id, []).append(f"w{self.count}tkohlrabi")
        return self.titles[chat_id][-1]

    def redact_words(self, chat_id: str) -> None:
        try:
            self.ledger.redact_words(chat_id)
        except HeldError:
            assert chat_id in self.held
        else:
            del self.titles[chat_id][:-1]

    def fork(self, chat_id: str, owner: str) -> None:
        self.count += 1
        head, new_id = self.ledger.get_messages(chat_id)[-1].id, f"c{self.count}"
        title = self.new_title(new_id)
        copy = self.ledger.fork_chat(chat_id, head, new_chat_id=new_id, user_id=owner, title=title)
        self.owners[copy.id], self.words[copy.id] = owner, {}
        for message in self.ledger.get_messages(copy.id):
            assert message.copied_from is not None
            self.copies[message.id] = message.copied_from
            self.words[copy.id][message.id] = self.words[chat_id][message.copied_from]
            self.senders[message.id] = self.senders[message.copied_from]

    def redact(self, chat_id: str, message_id: str) -> None:
        try:
            self.ledger.redact(message_id)
        except HeldError:
            assert chat_id in self.held
        else:
            assert chat_id not in self.held
            self.forget(message_id)

    def forget(self, message_id: str) -> None:
        """The word of a message and its copies is gone, but for those that a hold keeps."""
        for chat_id, words in self.words.items():
            if message_id in words and chat_id not in self.held:
                words[message_id] = None
        for copy in [copy for copy, original in self.copies.items() if original == message_id]:
            if any(copy in words for words in self.words.values()):
                self.forget(copy)

    def delete(self, owner: str) -> None:
        for chat_id in [one for one, user in self.owners.items() if user == owner and one not in self.held]:
            del self.owners[chat_id], self.words[chat_id], self.titles[chat_id]

    def named(self, user: str) -> Iterator[str]:
        """The messages that a user said, in chats that nothing holds."""
        for chat_id, words in self.words.items():
            if chat_id not in self.held:
                yield from (message_id for message_id in words if self.senders[message_id] == user)

    def sweep(self, owner: str, *, is_content: bool) -> None:
        self.ledger.set_retention("r", keep_days=1, user_id=owner, erases="content" if is_content else "all")
        self.ledger.sweep(now=LATE)
        self.ledger.remove_retention("r")
        if not is_content:
            self.delete(owner)
            return
        for chat_id in [one for one, user in self.owners.items() if user == owner and one not in self.held]:
            for message_id in [*self.words[chat_id]]:
                self.forget(message_id)

    def take_in(
        self,
        exported: ImportedChat,
        owner: str,
        words: dict[str, str | None],
        senders: dict[str, str | None],
        *,
        on_change: Literal["skip", "version"],
    ) -> None:
        """Import a chat: what is there stays as it is, and one that is gone is there again."""
        self.ledger.import_chat(exported, on_change=on_change)
        if exported.id not in self.owners:
            assert exported.title is not None
            self.titles[exported.id] = [exported.title]
            self.owners[exported.id], self.words[exported.id] = owner, {**words}
            self.senders |= senders

    def move(self) -> None:
        """Into another log, by a backup that is up to date."""
        self.ledger.backup(self.folder / "backup")
        self.ledger.close()
        shutil.rmtree(self.place)
        self.moves += 1
        self.place.mkdir()
        restore(self.folder / "backup", self.location)
        self.ledger = self.open()

    def check(self) -> None:
        """The ledger says what it should, and so does one that is built anew; no file has more."""
        self.ledger.wait_erased()
        for _ in range(2):
            said: dict[str, Any] = {
                chat.id: {
                    message.id: (message.text.removeprefix("say ") if message.redacted is None else None)
                    for message in self.ledger.get_messages(chat.id)
                }
                for chat in self.ledger.list_chats()
            }
            assert said == self.words
            titles = {chat.id: chat.title for chat in self.ledger.list_chats()}
            assert titles == {chat_id: words[-1] for chat_id, words in self.titles.items()}
            for words in self.words.values():
                for message in map(self.ledger.get_message, words):
                    assert message is not None
                    assert message.sender_id == self.senders[message.id]
            self.ledger.rebuild()
        found = self.ledger.verify()
        assert (found.broken_holds, found.redaction_pending, found.erasure_pending) == ((), (), ())
        self.ledger.backup(self.folder / "backup")
        self.ledger.close()
        stays = {word for words in self.words.values() for word in words.values()}
        stays |= {word for words in self.titles.values() for word in words}
        for number in range(1, self.count + 1):
            for word in (f"w{number}{kind}kohlrabi" for kind in "abt"):
                assert word in stays or files_with(self.folder, word.encode()) == [], word


@pytest.mark.timeout(1200)
@settings(max_examples=300 if IS_SOAK else 10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=4, max_size=14),
    is_directory=st.booleans() if IS_SOAK else st.sampled_from([False]),
)
def test_any_order(steps: list[tuple[str, int]], *, is_directory: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder), is_directory=is_directory)
        try:
            for name, number in [("append", 1), ("append", 0), *steps]:
                story.step(name, number)
            story.check()
        finally:
            story.ledger.close()
