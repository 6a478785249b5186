"""A person: all that a user owns is erased, what names the user elsewhere is told, and the receipt proves it."""

import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from tests.support.cli_world import ask, run
from tests.support.embedding_world import Words, slots_of
from tests.support.files_in_clear import files_with
from tests.support.ledger_world import internals
from tests.support.proof_world import KEY, pem_of

import chatledger
from chatledger import AccessDeniedError, ConfigurationError, InvalidValueError, Ledger, NewMessage, assistant, user
from chatledger.admin import restore
from chatledger.domain.proof.erasure_report import ErasureReport
from chatledger.errors import LogUnavailableError
from chatledger.graph_state import StateStore
from chatledger.importers import ImportedChat, read_all, write_all
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.ledger.persons import check_receipt
from chatledger.infra.log.port import EventLog
from chatledger.langgraph import LedgerSaver

SECRET = "Ada's card is 4929 1234"


def put_thread(ledger: Ledger, thread_id: str, text: str) -> None:
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"messages": [HumanMessage(text)]}}
    LedgerSaver(ledger).put(config, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {"messages": 1})


def fill(ledger: Ledger) -> None:
    """Ada has two chats, a thread of her own, a state and an item; Bob has the same, and one of his chats names her."""
    for name in ("ada", "bob"):
        own = ledger.for_user(name)
        for number in range(2):
            own.create_chat(f"{name}-{number}", name)
            own.append(f"{name}-{number}", [user(SECRET), assistant("Thank you.")])
        put_thread(own, f"{name}-thread", SECRET)
        StateStore(own).put(f"chat:{name}:cart", {"said": SECRET})
        ItemStore(own).put(("memories",), "card", {"text": SECRET})
    ledger.set_member("bob-0", "ada", "writer")
    with ledger.context(actor="ada"):
        ledger.append("bob-0", [NewMessage("user", "Hello Bob", sender_id="ada"), user("And good bye")])


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with chatledger.open(tmp_path / "ledger") as ledger:
        fill(ledger)
        yield ledger


def left(ledger: Ledger, name: str) -> list[int]:
    own = ledger.for_user(name)
    return [
        len([chat for chat in ledger.list_chats(user_id=name) if chat.user_id == name]),
        len(list(LedgerSaver(own).list(None))),
        len(StateStore(own).list(user_id=name)),
        len(ItemStore(own).list()),
    ]


def test_all_that_a_user_owns_goes(ledger: Ledger) -> None:
    """And nothing of anybody else's; a second call finds nothing."""
    assert left(ledger, "ada") == [2, 1, 1, 1]
    report = ledger.erase_user("ada")

    assert report.counts == {"chat": 2, "item": 1, "state": 1, "thread": 1}
    assert left(ledger, "ada") == [0, 0, 0, 0]
    assert left(ledger, "bob") == [2, 1, 1, 1]
    assert all(receipt.erased_at is not None for receipt in ledger.erasures())
    assert ledger.erase_user("ada").erased == ()
    assert ledger.verify().event_count


def test_a_dry_run_says_what_would_go(ledger: Ledger) -> None:
    """The same as what goes, and nothing is changed."""
    before = ledger.position
    told = ledger.erase_user("ada", dry_run=True)
    assert ledger.position == before == told.position == told.position_before
    assert told.root == told.root_before
    done = ledger.erase_user("ada")

    assert [(each.kind, each.digest) for each in told.erased] == [(each.kind, each.digest) for each in done.erased]
    assert [each.event_count for each in told.erased] == [each.event_count for each in done.erased]
    assert told.mentions == done.mentions
    assert all(each.position is None for each in told.erased)
    assert all(each.position is not None for each in done.erased)
    assert (done.position_before, done.root_before) == (told.position, told.root)
    assert done.root != done.root_before


def test_threads_that_go_with_a_chat_are_in_the_report(ledger: Ledger) -> None:
    """Also one that names nobody, and has the chat's id."""
    put_thread(ledger, "ada-0", SECRET)
    put_thread(ledger.for_user("ada"), "ada-1", SECRET)
    told = ledger.erase_user("ada", dry_run=True)
    done = ledger.erase_user("ada")

    assert told.counts == done.counts == {"chat": 2, "item": 1, "state": 1, "thread": 3}
    assert left(ledger, "ada") == [0, 0, 0, 0]


def test_who_names_the_user_is_told(ledger: Ledger) -> None:
    """Membership, senders and actors in chats of others, which stay as they are."""
    mentions = [(mention.chat_id, mention.kind, mention.count) for mention in ledger.erase_user("ada").mentions]

    assert mentions == [("bob-0", "actor", 1), ("bob-0", "member", 1), ("bob-0", "sender", 1)]
    assert len(ledger.get_messages("bob-0")) == 4
    assert ledger.erase_user("nobody at all").mentions == ()


def shown(ledger: Ledger, chat_id: str) -> str:
    """All that answers say of a chat, now and as of each moment."""
    moments = [recorded.position for recorded in ledger.history(chat_id) if not recorded.event.rest]
    return repr(
        [
            ledger.get_messages(chat_id),
            ledger.members(chat_id),
            [recorded.to_dict() for recorded in ledger.history(chat_id)],
            [recorded.to_dict() for recorded in ledger.feed(after=0, follow=False)],
            *(ledger.as_of(at).get_messages(chat_id) for at in moments),
            [message.sender_id for message in ledger.export_chat(chat_id).messages],
        ]
    )


NAME = "ada.lovelace@example"


def named_in_many_ways(ledger: Ledger) -> None:
    """A chat of Bob's in which she was a member twice, said something and redacted something, and a fork of it."""
    ledger.create_chat("team", "bob", members={NAME: "reader", "eve": "writer"})
    ledger.set_member("team", NAME, "writer")
    ledger.remove_member("team", NAME)
    with ledger.context(actor=NAME, command_id="twice"):
        ledger.append(
            "team", [NewMessage("user", f"Hello {number}", id=f"m{number}", sender_id=NAME) for number in range(3)]
        )
    ledger.append("team", [NewMessage("user", "Hello all", id="m3", sender_id="eve")])
    with ledger.context(actor=NAME):
        ledger.redact("m3", reason="a card")
    ledger.set_member("team", NAME, "writer")
    ledger.fork_chat("team", "m2", new_chat_id="copy", user_id="bob")


@pytest.mark.parametrize("location", ["memory", "directory", "sqlite"])
def test_a_pseudonym_takes_the_place_of_the_name(tmp_path: Path, location: str) -> None:
    """In messages, history, feed, earlier moments, exports and backups, also rebuilt; the chain is the same, no file has the name."""
    places = {"memory": "memory:", "directory": str(tmp_path / "ledger"), "sqlite": f"sqlite:///{tmp_path / 'log.db'}"}
    with chatledger.open(places[location]) as ledger:
        named_in_many_ways(ledger)
        ledger.backup(tmp_path / "backup")
        hashes = [recorded.hash for recorded in ledger.history("team")]
        planned = ledger.erase_user(NAME, dry_run=True, pseudonym="someone")
        report = ledger.erase_user(NAME, pseudonym="someone")

        assert planned.mentions == tuple(sorted(planned.mentions, key=lambda mention: (mention.chat_id, mention.kind)))
        kinds = {(mention.chat_id, mention.kind) for mention in report.pseudonymised}
        assert kinds == {("copy", "sender"), ("team", "actor"), ("team", "member"), ("team", "sender")}
        assert report.mentions == ()
        assert "someone" not in report.to_json()
        assert NAME not in shown(ledger, "team") + shown(ledger, "copy")
        messages = {message.id: message for message in ledger.get_messages("team")}
        assert [messages[f"m{number}"].sender_id for number in range(4)] == [*["someone"] * 3, "eve"]
        assert messages["m0"].data is not None
        why = messages["m3"].redacted
        assert why is not None
        assert (why.by, why.reason) == ("someone", "a card")
        assert [member.user_id for member in ledger.members("team")] == ["eve"]
        history = [*ledger.history("team")]
        assert [recorded.hash for recorded in history][: len(hashes)] == hashes
        assert {recorded.actor for recorded in history} == {None, "someone"}
        assert ledger.search("Hello")
        before = shown(ledger, "team")
        assert ledger.verify().redaction_pending == ()
        ledger.rebuild()
        assert shown(ledger, "team") == before
        assert ledger.erase_user(NAME).mentions == ()
        assert any("backup" in what for what in report.unreached[:-1])
        ledger.backup(tmp_path / "backup")
        assert len(ledger.erase_user(NAME).unreached) == 1
    restore(tmp_path / "backup", str(tmp_path / "restored"))
    with chatledger.open(tmp_path / "restored") as ledger:
        assert [message.sender_id for message in ledger.get_messages("copy")] == ["someone"] * 3
        ledger.verify()
    assert files_with(tmp_path, NAME.encode()) == []


def test_an_export_of_before_brings_no_name_back(tmp_path: Path) -> None:
    """Messages that are there keep the pseudonym, also where others of them were changed, and in an index that is built anew."""
    with chatledger.open(tmp_path / "ledger") as ledger:
        named_in_many_ways(ledger)
        exported = ledger.export_chat("team")
        # As it was before that was redacted.
        last = msgspec.structs.replace(exported.messages[3], data="Hello all", notes=None)
        exported = msgspec.structs.replace(exported, messages=(*exported.messages[:3], last))
        ledger.erase_user(NAME, pseudonym="someone")
        before = shown(ledger, "team")
        for _ in range(2):
            assert ledger.import_chat(exported).messages_added == 0
            assert ledger.import_chat(exported, on_change="refuse").messages_added == 0
            assert shown(ledger, "team") == before
            ledger.rebuild()
        (first, *rest) = exported.messages
        changed = msgspec.structs.replace(exported, messages=(msgspec.structs.replace(first, data="Hello you"), *rest))
        assert ledger.import_chat(changed).versions_added == 4
        assert NAME not in shown(ledger, "team")
        assert "Hello all" not in shown(ledger, "team")
        eve = msgspec.structs.replace(exported.messages[3], sender_id="mallory")
        ledger.import_chat(msgspec.structs.replace(exported, messages=(*exported.messages[:3], eve)))
        assert NAME not in shown(ledger, "team")
        ledger.verify()
    assert files_with(tmp_path, NAME.encode()) == []


def test_who_redacted_what_was_copied_is_called_otherwise_in_the_copy(tmp_path: Path) -> None:
    """What stands in the place of the content stays, and that it was redacted, and why."""
    with chatledger.open(tmp_path / "ledger") as ledger:
        ledger.create_chat("team", "bob")
        ledger.append("team", [NewMessage("user", f"card {number}", id=f"m{number}") for number in range(3)])
        with ledger.context(actor=NAME):
            ledger.redact("m1", keep="a card", reason="secret")
            ledger.redact("m2")
        ledger.fork_chat("team", "m2", new_chat_id="copy", user_id="bob")
        exported = msgspec.structs.replace(ledger.export_chat("copy"), id="moved")
        ledger.import_chat(exported, chat_id="moved")
        report = ledger.erase_user(NAME, pseudonym="someone")
        assert {(each.chat_id, each.kind) for each in report.pseudonymised} >= {("copy", "actor"), ("moved", "actor")}
        for chat_id in ("team", "copy", "moved"):
            assert NAME not in shown(ledger, chat_id)
            assert [message.data for message in ledger.get_messages(chat_id)] == ["card 0", "a card", None]
            why = ledger.get_messages(chat_id)[1].redacted
            assert why is not None
            assert why.reason == "secret"
        before = [shown(ledger, chat_id) for chat_id in ("team", "copy", "moved")]
        ledger.verify()
        ledger.rebuild()
        assert [shown(ledger, chat_id) for chat_id in ("team", "copy", "moved")] == before
        assert ledger.erase_user(NAME).mentions == ()
    assert files_with(tmp_path, NAME.encode()) == []


def test_a_name_that_was_not_erased_yet_is_in_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the event and the bytes, the ledger answers as it does afterwards; verify says that something is left."""
    with chatledger.open("memory:", erase="soon") as ledger:
        named_in_many_ways(ledger)
        ledger.wait_erased()
        with monkeypatch.context() as patched:
            patched.setattr(EventLog, "rewrite", refuse)
            with pytest.raises(LogUnavailableError):
                ledger.erase_user(NAME, pseudonym="someone")
            before = shown(ledger, "team")
            assert NAME not in before
            assert ledger.verify().redaction_pending == ("team", "copy")
            ledger.rebuild()
            assert shown(ledger, "team") == before
        ledger.wait_erased()
        assert ledger.verify().redaction_pending == ()
        assert shown(ledger, "team") == before


def refuse(self: EventLog, position: int, slots: object) -> bool:
    """Rewrite nothing."""
    del self, position, slots
    msg = "not now"
    raise LogUnavailableError(msg)


def test_a_person_who_said_a_lot_is_called_otherwise() -> None:
    """The number of a message takes more than a byte."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("team", "bob", members={NAME: "writer"})
        ledger.append("team", [NewMessage("user", f"word {n}", sender_id=NAME) for n in range(300)])
        ledger.erase_user(NAME, pseudonym="someone")
        assert {message.sender_id for message in ledger.get_messages("team")} == {"someone"}
        ledger.verify()


@pytest.mark.guard
def test_half_of_a_membership_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """However far the log was rewritten when it is read again, she is no member at the end, and Eve is."""
    rewrite, done = EventLog.rewrite, list[int]()
    for count in range(12):
        done.clear()

        def some(self: EventLog, position: int, slots: Any, count: int = count) -> bool:
            if len(done) == count:
                return refuse(self, position, slots)
            done.append(position)
            return rewrite(self, position, slots)

        with chatledger.open("memory:", erase="soon") as ledger, monkeypatch.context() as patched:
            named_in_many_ways(ledger)
            ledger.wait_erased()
            patched.setattr(EventLog, "rewrite", some)
            with suppress(LogUnavailableError):
                ledger.erase_user(NAME, pseudonym="someone")
            before = shown(ledger, "team")
            ledger.rebuild()
            assert shown(ledger, "team") == before
            assert [member.user_id for member in ledger.members("team")] == ["eve"]
            ledger.verify()
            done[:] = range(-1000, 0)


def test_a_hold_keeps_names(ledger: Ledger) -> None:
    """And the membership; the report says so, and the next call after the release takes them."""
    ledger.hold("chat", "bob-0")
    report = ledger.erase_user("ada", pseudonym="someone")
    assert [mention.kind for mention in report.mentions] == ["actor", "member", "sender"]
    assert report.pseudonymised == ()
    assert [member.user_id for member in ledger.members("bob-0")] == ["ada"]
    ledger.release("chat", "bob-0")
    report = ledger.erase_user("ada", pseudonym="someone")
    assert [mention.kind for mention in report.pseudonymised] == ["actor", "member", "sender"]
    assert report.mentions == ()
    assert ledger.verify().broken_holds == ()


@pytest.mark.guard
@pytest.mark.parametrize("location", ["directory", "sqlite"])
def test_who_wrote_to_values_of_others_is_called_otherwise(tmp_path: Path, location: str) -> None:
    """Threads, states and items: in history, feeds and files, also of an index that is built anew; and the log verifies as before."""
    name, folder = "ada.lovelace@example", tmp_path / "ledger"
    place = str(folder) if location == "directory" else f"sqlite:///{folder}.db"
    with chatledger.open(place) as ledger:
        fill(ledger)
        with ledger.context(actor=name):
            own = ledger.for_user("bob")
            put_thread(own, "bob-thread", "words")
            StateStore(own).put("chat:bob:cart", {"said": "words"})
            ItemStore(own).put(("memories",), "card", {"text": "words"})
            for kind, held_id in (("thread", "bob-thread"), ("state", "chat:bob:cart")):
                ledger.hold(kind, held_id)  # type: ignore[arg-type]  # kinds
                ledger.release(kind, held_id)  # type: ignore[arg-type]  # kinds
        anchor = ledger.anchor(pem_of(KEY))
        config: Any = {"configurable": {"thread_id": "bob-thread"}}
        checkpoints = [*LedgerSaver(ledger).list(config)]
        ledger.backup(tmp_path / "backup")
        planned = ledger.erase_user(name, dry_run=True)
        assert any("in the history of" in what for what in planned.unreached)
        report = ledger.erase_user(name, pseudonym="someone")
        assert not any("in the history of" in what for what in report.unreached)
        for _ in range(2):
            history = [recorded for recorded in ledger.history() if recorded.actor == "someone"]
            assert len({recorded.chat_id for recorded in history}) >= 3
            assert name not in repr([recorded.to_dict() for recorded in ledger.history()])
            assert [*LedgerSaver(ledger).list(config)] == checkpoints
            found = ledger.verify(anchor=anchor)
            assert (found.redaction_pending, found.broken_holds) == ((), ())
            assert ledger.erase_user(name, pseudonym="someone").pseudonymised == ()
            ledger.rebuild()
        with ledger.context(actor=name):
            put_thread(ledger.for_user("bob"), "bob-thread", "more words")
        ledger.erase_user(name, pseudonym="somebody")
        ledger.backup(tmp_path / "backup")
        told = [recorded.to_dict() for recorded in ledger.history()]
        restore(tmp_path / "backup", str(tmp_path / "restored"))
        with chatledger.open(tmp_path / "restored") as restored:
            assert [recorded.to_dict() for recorded in restored.history()] == told
            restored.verify()
        LedgerSaver(ledger.for_user("bob")).delete_thread("bob-thread")
        ledger.wait_erased()
        ledger.verify()
    assert files_with(tmp_path, name.encode()) == []


def test_who_held_a_chat_is_called_otherwise_in_it(ledger: Ledger) -> None:
    """The hold itself, which is the ledger's own, goes; one that is in force is named as what was not reached, like who wrote to threads."""
    with ledger.context(actor="ada"):
        ledger.hold("chat", "bob-1")
        ledger.release("chat", "bob-1")
        ledger.hold("thread", "bob-thread")
        put_thread(ledger.for_user("bob"), "bob-thread", "words")
    before = ledger.get_chat("bob-1")
    assert any("of 3 of them" in what for what in ledger.erase_user("ada", dry_run=True).unreached)
    assert any("of 2 of them" in what for what in ledger.erase_user("ada", pseudonym="someone").unreached)
    ledger.release("thread", "bob-thread")
    assert not any("of them" in what for what in ledger.erase_user("ada", pseudonym="someone").unreached)
    assert [each.actor for each in ledger.history() if "holds:" in each.chat_id and each.actor] == []
    assert "'ada'" not in repr([recorded.to_dict() for recorded in ledger.history("bob-1")])
    ledger.rebuild()
    assert ledger.get_chat("bob-1") == before
    ledger.verify()


def test_holds_that_were_released_go_with_the_person(tmp_path: Path) -> None:
    """Who was held and why stands in the holds, too, on what is the person's and on the person."""
    with chatledger.open(tmp_path / "ledger") as ledger:
        fill(ledger)
        put_thread(ledger.for_user("ada"), "alone", "words")
        held: list[tuple[Any, str]] = [
            ("user", "ada"),
            ("thread", "alone"),
            ("chat", ledger.list_chats(user_id="ada")[0].id),
        ]
        for kind, held_id in held:
            ledger.hold(kind, held_id, reason="about kohlrabi")
        for kind, held_id in held:
            assert ledger.release(kind, held_id)
        assert ledger.erase_user("ada").held == ()
        ledger.verify()
        ledger.rebuild()
        ledger.verify()
    assert files_with(tmp_path, b"kohlrabi") == []


def test_a_report_names_the_backups_that_end_before_the_erasure(ledger: Ledger, tmp_path: Path) -> None:
    """Each until it is brought up to date, in the order of their folders; of who had nothing there is none to name."""
    for name in ("second", "first"):
        ledger.backup(tmp_path / name)
    named = [str(tmp_path / name) for name in ("first", "second")]
    planned = ledger.erase_user("ada", dry_run=True).unreached
    assert [name for what, name in zip(planned, named, strict=False) if name in what] == named
    ledger.erase_user("ada")
    ledger.backup(tmp_path / "second")
    (what, *others) = ledger.erase_user("ada").unreached
    assert str(tmp_path / "first") in what
    assert not any(str(tmp_path / "second") in other for other in others)
    ledger.backup(tmp_path / "first")
    assert not any(str(tmp_path) in what for what in ledger.erase_user("ada").unreached)
    assert ledger.feeds() == []


def test_a_backup_that_was_deleted_is_named_no_more(ledger: Ledger, tmp_path: Path) -> None:
    """Once somebody says so, from the shell too; not as long as it is there."""
    for name in ("here", "gone", "gone too"):
        ledger.backup(tmp_path / name)
    with pytest.raises(ConfigurationError, match="still"):
        ledger.forget_backup(tmp_path / "here")
    with pytest.raises(AccessDeniedError):
        ledger.for_user("ada").forget_backup(tmp_path / "gone")
    for name in ("gone", "gone too"):
        shutil.rmtree(tmp_path / name)
    assert ledger.forget_backup(tmp_path / "gone")
    assert not ledger.forget_backup(tmp_path / "gone")
    ledger.erase_user("ada")
    told = run("backup", str(tmp_path / "gone too"), "--gone", at=tmp_path / "ledger")
    assert (told.exit_code, "named no more" in told.stdout) == (0, True)
    assert ask("backup", str(tmp_path / "gone too"), "--gone", at=tmp_path / "ledger") == {"forgotten": False}
    (here,) = (what for what in ledger.erase_user("ada").unreached if str(tmp_path) in what)
    assert str(tmp_path / "here") in here


def test_no_byte_is_left(tmp_path: Path) -> None:
    """Of what only she said no file has anything."""
    with chatledger.open(tmp_path / "ledger") as ledger:
        fill(ledger)
        ledger.append("ada-0", [user("Xylophonic Zanzibar")])
        put_thread(ledger.for_user("ada"), "ada-thread", "Xylophonic Zanzibar")
        ItemStore(ledger.for_user("ada")).put(("memories",), "word", {"text": "Xylophonic Zanzibar"})
        ledger.erase_user("ada")

    assert files_with(tmp_path, b"Xylophonic") == []


@pytest.mark.parametrize("location", ["memory:", "ledger"])
def test_what_hangs_on_a_chat_goes_along(tmp_path: Path, location: str) -> None:
    """Vectors, an answer that is being written, a run, and how far the user's feeds are; those of others stay."""
    place = location if ":" in location else str(tmp_path / location)
    embedding = Words().embedding()
    with chatledger.open(place, embed=embedding) as ledger:
        for name in ("ada", "bob"):
            own = ledger.for_user(name)
            own.create_chat(name, name)
            own.append(name, [NewMessage("user", f"xylophone of {name}", id=f"m-{name}")])
            own.record_run(
                name,
                f"r-{name}",
                thread_id="t",
                assistant_id="a",
                trigger_message_id=f"m-{name}",
                metadata={"in": name},
            )
            with own.live(name) as answer:
                answer.write(f"zither of {name}")
            with own.feed(name="news", follow=False) as feed:
                assert len(list(feed)) > 0
        assert ledger.embed_pending() == 0
        before = slots_of(ledger, embedding)
        ledger.erase_user("ada")

        # A chat is known by the position of its first event there: hers was the first one.
        assert slots_of(ledger, embedding) == {slot for slot in before if slot[0] != 1} != before
        assert [len(ledger.for_user(name).feeds()) for name in ("ada", "bob")] == [0, 1]
        assert [stream.chat_id for stream in ledger.list_live()] == ["bob"]
    assert [files_with(tmp_path, f"{word} of ada".encode()) for word in ("xylophone", "zither")] == [[], []]


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, bytes]:
    """A private key in a file, and its public one."""
    key = Ed25519PrivateKey.generate()
    path = tmp_path / "receipts.key"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_a_receipt_is_checked_without_the_ledger(ledger: Ledger, keys: tuple[Path, bytes]) -> None:
    """As it was signed it holds; changed anywhere, or by another key, it does not."""
    private, public = keys
    receipt = ErasureReport.from_json(ledger.erase_user("ada", key=private).to_json())
    check_receipt(receipt)
    check_receipt(receipt, public)
    changed: dict[str, Any] = {
        "user_id": "bob",
        "ended_at": 1,
        "root": "00",
        "erased": receipt.erased[1:],
        "unreached": (),
    }
    for name, value in changed.items():
        with pytest.raises(InvalidValueError, match="changed after it was signed"):
            check_receipt(msgspec.structs.replace(receipt, **{name: value}), public)
    other = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(InvalidValueError, match="another key"):
        check_receipt(receipt, other)
    with pytest.raises(InvalidValueError, match="nobody signed"):
        check_receipt(ledger.erase_user("ada"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no receipt"),
        ("[]", "no receipt"),
        ("{}", "no receipt"),
        ('{"format": "chatledger-erasure/9"}', "reads"),
        ('{"format": "chatledger-erasure/1"}', "damaged"),
    ],
)
def test_what_is_no_receipt(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        ErasureReport.from_json(text)


def test_bad_input(ledger: Ledger) -> None:
    """Whoever is limited to a user erases nobody; nobody's is not a person's."""
    with pytest.raises(AccessDeniedError):
        ledger.for_user("ada").erase_user("ada")
    with pytest.raises(InvalidValueError):
        ledger.erase_user("")
    with pytest.raises(InvalidValueError, match="itself"):
        ledger.erase_user("ada", pseudonym="ada")
    with pytest.raises(InvalidValueError, match="pseudonym"):
        ledger.erase_user("ada", pseudonym="")
    assert left(ledger, "ada") == [2, 1, 1, 1]


def test_the_report_after_an_interruption_names_what_was_erased_before(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its tombstone, in the order of the log; nobody else's."""
    ledger.erase_user("bob")
    planned = ledger.erase_user("ada", dry_run=True)
    assert planned.earlier == ()
    store, done = internals(ledger), list[str]()
    execute = store.execute

    def interrupted(streams: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        if len(done) == 3:
            msg = "interrupted"
            raise LogUnavailableError(msg)
        done.append(key)
        return execute(streams, key, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(store, "execute", interrupted)
        with pytest.raises(LogUnavailableError):
            ledger.erase_user("ada")
    report = ledger.erase_user("ada")
    again = ledger.erase_user("ada")

    assert (len(report.earlier), len(report.erased)) == (3, 2)
    assert [each.digest for each in (*report.earlier, *report.erased)] == [each.digest for each in planned.erased]
    assert [each.event_count for each in report.earlier] == [each.event_count for each in planned.erased[:3]]
    assert again.erased == ()
    assert again.earlier == (*report.earlier, *report.erased)


ERASE = """
import sys
import chatledger
with chatledger.open(sys.argv[1]) as ledger:
    print("open", flush=True)
    ledger.erase_user("ada")
"""


@pytest.mark.parametrize(
    "kills",
    [pytest.param(6, marks=pytest.mark.guard), pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
def test_killed_erasures_leave_no_byte(tmp_path: Path, kills: int) -> None:
    """Whenever the process dies, the next call goes on, and what she said is in no file at the end."""
    place, drawn = tmp_path / "ledger", random.Random(kills)
    with chatledger.open(place) as ledger:
        fill(ledger)
    for number in range(kills):
        with chatledger.open(place) as ledger:
            own = ledger.for_user("ada")
            for chat in range(3):
                own.create_chat(f"more-{number}-{chat}", "ada")
                own.append(f"more-{number}-{chat}", [user("Xylophonic Zanzibar") for _ in range(3)])
            put_thread(own, f"more-{number}", "Xylophonic Zanzibar")
            ItemStore(own).put(("memories",), f"more-{number}", {"text": "Xylophonic Zanzibar"})
        child = subprocess.Popen([sys.executable, "-c", ERASE, str(place)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        time.sleep(drawn.random() * 0.15)
        child.kill()
        child.wait()
        child.stdout.close()
    with chatledger.open(place) as ledger:
        report = ledger.erase_user("ada")
        assert len({each.digest for each in (*report.earlier, *report.erased)}) == 5 * (1 + kills)
        assert left(ledger, "ada") == [0, 0, 0, 0]
        assert left(ledger, "bob") == [2, 1, 1, 1]
        ledger.verify()

    assert files_with(tmp_path, b"Xylophonic") == []


def test_all_of_a_user_is_exported(ledger: Ledger, tmp_path: Path) -> None:
    """What is handed over can be imported as it was: the owned things, and not the chats that the user is a member of."""
    with (tmp_path / "ada.jsonl").open("wb") as file:
        write_all(file, ledger.export_user("ada"))
    problems: list[Any] = []
    with chatledger.open(tmp_path / "other") as other:
        for exported in read_all(tmp_path / "ada.jsonl", on_problem=problems.append):
            other.import_chat(exported) if isinstance(exported, ImportedChat) else other.import_value(exported)
        assert problems == []
        assert left(other, "ada") == [2, 1, 1, 1]
        assert [message.data for message in other.get_messages("ada-0")] == [
            message.data for message in ledger.get_messages("ada-0")
        ]
        assert left(other, "bob") == [0, 0, 0, 0]
    assert list(ledger.export_user("nobody")) == []
    with pytest.raises(AccessDeniedError):
        ledger.for_user("ada").export_user("ada")


def test_an_export_of_before_that_is_taken_in_again(ledger: Ledger) -> None:
    """Messages that are there keep the pseudonym. A chat that was deleted is there again, as it was: erasing once more takes out the name."""
    ledger.append("bob-1", [NewMessage("user", "Good bye", sender_id="ada")])
    exported = [ledger.export_chat(chat_id) for chat_id in ("bob-0", "bob-1")]
    ledger.erase_user("ada", pseudonym="former user")
    ledger.delete_chat("bob-1")
    for chat in exported:
        ledger.import_chat(chat)
    assert {message.sender_id for message in ledger.get_messages("bob-0")} == {"former user", None}
    assert [member.user_id for member in ledger.members("bob-0")] == []
    assert [message.sender_id for message in ledger.get_messages("bob-1")] == [None, None, "ada"]
    report = ledger.erase_user("ada", pseudonym="former user")
    assert {(mention.chat_id, mention.kind) for mention in report.pseudonymised} == {("bob-1", "sender")}
    assert ledger.get_messages("bob-1")[-1].sender_id == "former user"
