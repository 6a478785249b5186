"""Redaction of messages: what is gone from which answer and file, and what stays."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.files_in_clear import files_with
from tests.support.ledger_world import internals

import chatledger
from chatledger import Ledger, LedgerView, Message, NewMessage, assistant, user
from chatledger.admin import restore
from chatledger.domain.errors import (
    AccessDeniedError,
    ChainIntegrityError,
    ChatNotFoundError,
    HeldError,
    InvalidValueError,
    LogUnavailableError,
    MessageNotFoundError,
)
from chatledger.domain.log.large_data import LARGE_BYTES
from chatledger.forms import to_anthropic, to_openai
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.proof import check_excerpt
from chatledger.infra.log.memory import MemoryLog
from chatledger.infra.log.nats import event_log
from chatledger.infra.log.port import EventLog

SECRET = "kohlrabi"
LOCATIONS = ["memory", "directory", "sqlite"]


@pytest.fixture(params=LOCATIONS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Callable[[], Ledger], Path]]:
    """Opens a ledger in a folder, of each kind of log; again and again the same one, but for that in memory."""
    if request.param == "memory":
        with chatledger.open("memory:", erase="soon") as ledger:
            yield lambda: ledger, tmp_path
        return
    location = str(tmp_path / "ledger") if request.param == "directory" else f"sqlite:///{tmp_path / 'log.db'}"
    opened: list[Ledger] = []

    def reopen() -> Ledger:
        for earlier in opened:
            earlier.close()
        opened.append(chatledger.open(location, erase="soon"))
        return opened[-1]

    yield reopen, tmp_path
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:", erase="soon") as opened:
        yield opened


def refuse(self: EventLog, position: int, slots: object) -> bool:
    """Rewrite nothing."""
    del self, position, slots
    msg = "not now"
    raise LogUnavailableError(msg)


@pytest.fixture
def _is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log rewrites nothing."""
    monkeypatch.setattr(EventLog, "rewrite", refuse)


def spoken(message_id: str, text: str) -> NewMessage:
    data = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return NewMessage("user", data, id=message_id)


def fill(ledger: Ledger, chat_id: str = "c") -> list[str]:
    """A chat of three messages, of which the second has the secret; their ids."""
    ledger.create_chat(chat_id, "ada")
    texts = ["about plants", f"I like {SECRET} best", "so do I"]
    drafts = [spoken(f"{chat_id}-{number}", text) for number, text in enumerate(texts, 1)]
    ledger.append(chat_id, drafts)
    return [str(draft.id) for draft in drafts]


def said(ledger: Ledger, chat_id: str = "c") -> str:
    """Everything that answers say of a chat."""
    first = next(iter(ledger.history(chat_id))).position + 1
    return repr(
        [
            ledger.get_messages(chat_id),
            ledger.get_chat(chat_id),
            ledger.graph(chat_id),
            ledger.search(SECRET),
            [recorded.to_dict() for recorded in ledger.history(chat_id)],
            [recorded.to_dict() for recorded in ledger.feed(after=0, follow=False)],
            *(ledger.as_of(position).get_messages(chat_id) for position in range(first, ledger.position + 1)),
            *(ledger.as_of(position).search(SECRET) for position in range(first, ledger.position + 1)),
            list(ledger.export_chat(chat_id).messages),
        ]
    )


def test_a_redacted_message_is_in_its_place_and_in_no_answer(world: tuple[Callable[[], Ledger], Path]) -> None:
    """Id, parent, time and role stay; when, by whom and why is said. Chain, index and a rebuilt index agree; no file has it."""
    reopen, folder = world
    ledger = reopen()
    ids = fill(ledger)
    before = ledger.get_messages("c")
    hashes = [recorded.hash for recorded in ledger.history("c")]

    with ledger.context(actor="ada"):
        redacted = ledger.redact(ids[1], reason="a vegetable")

    after = ledger.get_messages("c")
    assert [ids[1]] == redacted.message_ids
    assert [before[0], before[2]] == [after[0], after[2]]
    assert (before[1].id, before[1].parent_id, before[1].created_at, before[1].name) == (
        *(after[1].id, after[1].parent_id, after[1].created_at),
        after[1].name,
    )
    assert after[1].data is None
    why = after[1].redacted
    assert why is not None
    assert ("ada", "a vegetable", "request", 3) == (why.by, why.reason, why.cause, why.position)
    assert SECRET not in said(ledger)
    ledger.wait_erased()
    assert SECRET not in said(ledger)
    assert hashes == [recorded.hash for recorded in ledger.history("c")][:2]
    (receipt,) = ledger.erasures()
    assert ("redaction", "c", 3, 1) == (receipt.kind, receipt.id, receipt.position, receipt.event_count)
    assert receipt.erased_at is not None
    assert () == ledger.verify().redaction_pending
    ledger.rebuild()
    assert after == ledger.get_messages("c")
    assert SECRET not in said(ledger)
    assert () == ledger.verify().redaction_pending
    assert [] == ledger.erasures(is_pending=True)
    ledger = reopen()
    assert after == ledger.get_messages("c")
    ledger.close()
    assert [] == files_with(folder, SECRET.encode())


@pytest.mark.usefixtures("_is_kept_back")
def test_until_the_log_is_rewritten_no_answer_has_it(ledger: Ledger) -> None:
    """Nor an index that is built anew meanwhile, which finds by the events what is left to do."""
    ids = fill(ledger)
    view = ledger.as_of(2)
    assert SECRET in repr(view.get_messages("c"))
    ledger.redact(ids[1])

    assert SECRET not in repr(view.get_messages("c"))
    assert SECRET not in said(ledger)
    assert ("c",) == ledger.verify().redaction_pending
    with pytest.raises(LogUnavailableError, match="were redacted, and what they said is in no answer"):
        ledger.wait_erased()
    ledger.rebuild()
    assert SECRET not in said(ledger)
    assert ("c",) == ledger.verify().redaction_pending
    assert 1 == len(ledger.erasures(is_pending=True))
    assert SECRET.encode() not in store_of(ledger).bytes_at([2])[2]


def test_a_redaction_goes_on_where_it_was_interrupted(world: tuple[Callable[[], Ledger], Path]) -> None:
    """Whoever opens the ledger next finishes it, also with another index."""
    reopen, folder = world
    ledger = reopen()
    ids = fill(ledger)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store_of(ledger).log), "rewrite", refuse)
        ledger.redact(ids[1])
        with pytest.raises(LogUnavailableError):
            ledger.wait_erased()
        ledger.rebuild()
        assert 1 == len(ledger.erasures(is_pending=True))
    ledger = reopen()
    ledger.wait_erased()

    assert [] == ledger.erasures(is_pending=True)
    assert () == ledger.verify().redaction_pending
    ledger.close()
    assert [] == files_with(folder, SECRET.encode())


def test_a_text_in_its_place_can_be_redacted_too(world: tuple[Callable[[], Ledger], Path]) -> None:
    """It is the data, without a form; it is not searched; and another redaction takes it away, with its reason."""
    reopen, folder = world
    ledger = reopen()
    ids = fill(ledger)
    ledger.redact(ids[1], keep="I like celeriac best", reason="roots")

    (_, kept, _) = ledger.get_messages("c")
    assert ("I like celeriac best", None) == (kept.data, kept.form)
    assert [] == ledger.search("celeriac")
    assert [] == ledger.redact(ids[1], keep="I like celeriac best").message_ids
    assert "celeriac" in said(ledger)
    assert [ids[1]] == ledger.redact(ids[1]).message_ids
    assert [] == ledger.redact(ids[1], keep="something").message_ids
    ledger.wait_erased()
    for _ in range(2):
        assert ledger.get_messages("c")[1].data is None
        assert "celeriac" not in said(ledger)
        assert () == ledger.verify().redaction_pending
        ledger.rebuild()
    ledger.close()
    assert [] == files_with(folder, b"celeriac")


def test_a_function_keeps_a_part_of_a_message(ledger: Ledger) -> None:
    """In its form, with its notes gone; what the function leaves as it is, is left alone."""
    ids = fill(ledger)

    def without_secret(message: Message) -> Any:
        return {**message.data, "parts": [{"type": "text", "text": message.text.replace(SECRET, "…")}]}

    assert [ids[1]] == ledger.redact(ids, keep=without_secret).message_ids
    (_, kept, _) = ledger.get_messages("c")
    assert "I like … best" == kept.text
    assert "ui" == kept.form
    ledger.wait_erased()
    ledger.rebuild()
    assert kept == ledger.get_messages("c")[1]
    assert SECRET not in said(ledger)


def test_versions_before_an_edit_go_along(ledger: Ledger) -> None:
    """Where that is asked for; what followed them stays."""
    ledger.create_chat("c", "ada")
    ledger.append("c", [user("hello", id="m1"), user(f"it is {SECRET}", id="m2"), user("thanks", id="m3")])
    ledger.create_branch("c", "edited", "m1", activate=True)
    ledger.append("c", user("it is a secret", id="m4"))
    ledger.create_branch("c", "again", "m1", activate=True)
    ledger.append("c", user(f"{SECRET}, it is", id="m5"))

    assert ledger.redact("m4").message_ids == ["m4"]
    assert ledger.redact("m4", versions=True, keep="…").message_ids == ["m2", "m5"]
    assert [message.data for message in ledger.get_messages("c")][-1] == "…"
    assert [message.text for message in ledger.get_messages("c", branch="main")] == ["hello", "…", "thanks"]
    with pytest.raises(MessageNotFoundError):
        ledger.redact(["m3", "none"], versions=True)
    ledger.wait_erased()
    assert SECRET not in said(ledger)
    ledger.verify()


def test_all_or_none_of_unknown_and_foreign_messages(ledger: Ledger) -> None:
    """An unknown message and one of another user answer alike; twice is once."""
    ids = fill(ledger)
    ledger.create_chat("hers", "bob")
    ledger.append("hers", NewMessage("user", "mine", id="hers-1"))
    ada = ledger.for_user("ada")

    for strange in ("hers-1", "nobody's"):
        with pytest.raises(MessageNotFoundError) as caught:
            ada.redact([ids[0], strange])
        assert str(caught.value).count(strange) == 1
        assert strange == caught.value.message_id
    assert [None] * 3 == [message.redacted for message in ledger.get_messages("c")]
    assert ids == ada.redact([*ids, *ids]).message_ids
    assert [] == ada.redact(ids).message_ids
    assert [] == ada.redact([]).message_ids
    for wrong in ({"keep": 7}, {"reason": 7}, {"cause": "fun"}, {"copies": "yes"}, {"keep": lambda _: {1: 2}}):
        with pytest.raises(InvalidValueError):
            ledger.redact("hers-1", **wrong)


def test_only_the_owner_redacts(ledger: Ledger) -> None:
    """What is erased for ever is not a writer's to erase."""
    ids = fill(ledger)
    ledger.set_member("c", "bob", "writer")

    with pytest.raises(AccessDeniedError, match="only the owner"):
        ledger.for_user("bob").redact(ids[0])


def test_a_hold_refuses_a_redaction(ledger: Ledger) -> None:
    """Until it is released: of several messages none is redacted, as the error says, and of copies those that are not held."""
    ids = fill(ledger)
    ledger.fork_chat("c", ids[1], new_chat_id="fork")
    ledger.hold("chat", "c")
    copy = ledger.get_messages("fork")[0].id
    end = ledger.last_position()

    with pytest.raises(HeldError):
        ledger.redact([copy, ids[0]])
    assert end == ledger.last_position()
    ledger.release("chat", "c")
    ledger.hold("chat", "fork")
    redacted = ledger.redact(ids[0])
    assert ([ids[0]], ["fork"]) == (redacted.message_ids, redacted.held)
    assert ledger.get_messages("fork")[0].redacted is None


def test_what_is_damaged_keeps_nothing_else_on_the_log(tmp_path: Path) -> None:
    """Its redaction stays due; other events of it, and what is redacted or deleted later, are erased."""
    file = tmp_path / "log.db"
    with chatledger.open(f"sqlite:///{file}", compression="none") as ledger:
        ledger.create_chat("c", "ada")
        for number in range(3):
            ledger.append("c", [spoken(f"m{number}", f"{SECRET}{number}")])
        ledger.create_chat("d", "ada")
        ledger.append("d", [spoken("d0", f"{SECRET}9")])
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE stored_events SET state = zeroblob(20) WHERE position = 2")
        ledger.redact(["m0", "m1"])
        ledger.redact("m2")
        ledger.delete_chat("d")
        ledger.wait_erased()
        left = [(receipt.kind, receipt.id) for receipt in ledger.erasures() if receipt.erased_at is None]
    assert [("redaction", "c")] == left
    assert not any(files_with(tmp_path, f"{SECRET}{number}".encode()) for number in (1, 2, 9))


def test_what_comes_back_is_erased_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of a cluster may take a deletion back: the log has the old bytes beside the rewritten ones, and the next open sees it."""
    with monkeypatch.context() as patched:
        patched.setattr(event_log, "erase_all", lambda *_: 1)
        with chatledger.open(tmp_path / "ledger", erase="soon") as ledger:
            ids = fill(ledger)
            ledger.redact(ids[1])
            ledger.wait_erased()
            assert all(receipt.erased_at is not None for receipt in ledger.erasures())
            assert ledger.verify().redaction_pending == ("c",)
    assert files_with(tmp_path, SECRET.encode()) != []
    with chatledger.open(tmp_path / "ledger", erase="soon") as ledger:
        assert SECRET not in said(ledger)
        ledger.wait_erased()
        assert ledger.verify().redaction_pending == ()
    assert files_with(tmp_path, SECRET.encode()) == []


def test_a_repeated_append_finds_the_message(ledger: Ledger) -> None:
    """Its content does not come back, and it is no conflict: a client repeats what it sent."""
    fill(ledger)
    ledger.redact("c-3")
    ledger.append("c", [spoken("c-3", "so do I")])

    assert ledger.get_messages("c")[-1].data is None


def test_copies_in_forks_lose_their_content_too(ledger: Ledger) -> None:
    """Each chat has its own event, which names the first one as its cause; others stay as they are without `copies`."""
    ids = fill(ledger)
    fork = ledger.fork_chat("c", ids[1], new_chat_id="fork")
    again = ledger.fork_chat("fork", ledger.get_messages("fork")[1].id, new_chat_id="again")
    assert [] == ledger.redact(ids[0], copies=False).copies
    assert ledger.get_messages("fork")[0].redacted is None
    redacted = ledger.redact(ids[1])

    assert [ledger.get_messages(chat.id)[1].id for chat in (fork, again)] == redacted.copies
    events = [list(ledger.history(chat_id))[-1] for chat_id in ("c", "fork", "again")]
    assert [None, events[0].event_id, events[0].event_id] == [recorded.event.causation_id for recorded in events]
    ledger.wait_erased()
    assert not any(SECRET in said(ledger, chat_id) for chat_id in ("c", "fork", "again"))
    ledger.verify()
    ledger.delete_chat("fork")
    ledger.verify()


def test_content_that_nothing_explains_is_a_broken_chain(ledger: Ledger) -> None:
    """Hashes alone do not tell that somebody took content away; `verify` does."""
    ids = fill(ledger)
    ledger.append("c", user("more"))
    log = store_of(ledger).log
    assert isinstance(log, MemoryLog)
    log.rewrite(2, [5])

    ledger.rebuild()
    with pytest.raises(ChainIntegrityError, match="nothing on the log says why"):
        ledger.verify()
    ledger.redact(ids[1])
    ledger.verify()


def test_large_data_go_with_the_last_message_that_has_them(ledger: Ledger) -> None:
    """Not before: another message of the chat, or of another one, may have the same."""
    picture = SECRET * 50_000
    ledger.create_chat("c", "ada")
    for number in range(3):
        ledger.append("c", NewMessage("user", {"image": picture, "number": number}, id=f"m{number}"))
    log: Any = store_of(ledger).log
    blobs = log.blobs
    for number in range(3):
        assert [] == list(blobs.unreferenced(digests_of(ledger)))
        assert 1 == len(digests_of(ledger))
        ledger.redact(f"m{number}")
        ledger.wait_erased()
    assert [] == digests_of(ledger)
    assert [] == list(blobs.unreferenced([]))
    ledger.verify()
    ledger.rebuild()
    ledger.verify()


def digests_of(ledger: Ledger) -> list[bytes]:
    with store_of(ledger).snapshot() as snapshot:
        return list(snapshot.live.large_digests())  # type: ignore[attr-defined]


def test_a_reminder_counts_as_a_turn_in_all_that_follows(ledger: Ledger) -> None:
    """As it does when the log is read again: what made it a reminder is gone."""
    ledger.create_chat("c", "ada")
    ledger.append("c", [NewMessage("user", "remind", id="r", metadata={"synthetic": True, "once_ids": ["x"]})])
    ledger.append("c", [user(str(number)) if number % 3 else assistant(str(number)) for number in range(200)])
    chain = ledger.get_messages("c")
    ledger.fork("c", chain[100].id)
    ledger.append("c", [user(str(number)) for number in range(70)])
    ledger.fork("c", ledger.get_messages("c")[120].id)
    ledger.append("c", user("last"))
    ledger.redact("r")

    ledger.wait_erased()
    ledger.verify()
    ledger.rebuild()
    ledger.verify()


@pytest.mark.guard
def test_many_messages_are_few_events(ledger: Ledger) -> None:
    """5,000 targets an event; the others of the chat are found as before."""
    ledger.create_chat("c", "ada")
    drafts = [
        NewMessage("user", f"word{number % 50} number{number} {SECRET}", id=f"m{number}") for number in range(6000)
    ]
    ledger.append("c", drafts)
    ledger.redact([f"m{number}" for number in range(5900)])

    assert 2 == sum(recorded.type == "content_redacted" for recorded in ledger.history("c"))
    assert {f"m{number}" for number in range(5900, 6000)} == {
        hit.message.id for hit in ledger.search(SECRET, limit=200)
    }
    ledger.wait_erased()
    ledger.verify()
    ledger.rebuild()
    assert 100 == len(ledger.search(SECRET, limit=200))
    ledger.verify()


@given(
    st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=4), min_size=1, max_size=5),
    st.booleans(),
    st.integers(1, 12),
)
@settings(max_examples=25, deadline=None)
def test_any_order_of_redactions(orders: list[list[int]], has_texts: bool, in_an_event: int) -> None:  # noqa: FBT001
    """What was redacted is in no answer; the others read as before; live and rebuilt indexes are equal at each step."""
    with chatledger.open("memory:", erase="soon") as ledger:
        ledger.create_chat("c", "ada")
        drafts = [NewMessage("user", f"plain{number} {SECRET}{number}q", id=f"m{number}") for number in range(12)]
        for start in range(0, 12, in_an_event):
            ledger.append("c", drafts[start : start + in_an_event])
        before = {message.id: message for message in ledger.get_messages("c")}
        gone: dict[str, str | None] = {}
        for step, numbers in enumerate(orders):
            keep = f"text of {step}" if has_texts and step % 2 else None
            ids = [f"m{number}" for number in dict.fromkeys(numbers)]
            done = ledger.redact(ids, keep=keep).message_ids
            assert [i for i in ids if not (i in gone and gone[i] is None)] == sorted(done, key=ids.index)
            gone |= dict.fromkeys(done, keep)
            for message in ledger.get_messages("c"):
                if message.id in gone:
                    assert gone[message.id] == message.data
                else:
                    assert before[message.id] == message
                hits = [hit.message.id for hit in ledger.search(f"{SECRET}{message.id[1:]}q")]
                assert hits == ([] if message.id in gone else [message.id])
            ledger.wait_erased()
            ledger.verify()
        events = [recorded.hash for recorded in ledger.history("c")]
        shown = ledger.get_messages("c")
        ledger.rebuild()
        assert events == [recorded.hash for recorded in ledger.history("c")]
        assert shown == ledger.get_messages("c")
        ledger.verify()


def test_a_backup_that_is_brought_up_to_date_loses_the_content(tmp_path: Path, ledger: Ledger) -> None:
    """Of a redaction before it or since, whether or not the log is rewritten; what is restored from it verifies."""
    ids = fill(ledger)
    ledger.backup(tmp_path / "backup")
    assert files_with(tmp_path / "backup", SECRET.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventLog, "rewrite", refuse)
        ledger.redact(ids[1])
        ledger.backup(tmp_path / "backup")
        ledger.backup(tmp_path / "fresh")
    for folder in ("backup", "fresh"):
        assert [] == files_with(tmp_path / folder, SECRET.encode())
        restore(tmp_path / folder, tmp_path / f"{folder}-restored")
        with chatledger.open(tmp_path / f"{folder}-restored") as restored:
            assert ledger.get_messages("c") == restored.get_messages("c")
            assert () == restored.verify().redaction_pending


def test_an_export_says_that_a_message_was_redacted(ledger: Ledger) -> None:
    """What is imported from it says so too; imported over what has its content it changes nothing, nor brings content back."""
    ids = fill(ledger)
    before = ledger.export_chat("c")
    ledger.redact(ids[1], reason="a vegetable")
    after = ledger.export_chat("c")
    assert SECRET not in repr(after)
    assert 0 == ledger.import_chat(before).messages_added
    assert SECRET not in repr(ledger.get_messages("c"))

    with chatledger.open("memory:") as other:
        other.import_chat(after)
        (_, imported, _) = other.get_messages("c")
        original = ledger.get_messages("c")[1].redacted
        assert imported.redacted is not None
        assert original is not None
        assert (original.at, "a vegetable", 0) == (
            *(imported.redacted.at, imported.redacted.reason),
            imported.redacted.position,
        )
        assert 0 == other.import_chat(before).messages_added
        other.verify()
        other.rebuild()
        assert imported == other.get_messages("c")[1]
        other.verify()


def test_a_part_of_a_message_by_its_path(ledger: Ledger) -> None:
    """The rest of the data is kept; a path that is not there is an error, and nothing is redacted."""
    ids = fill(ledger)
    paths: list[Any] = [
        ["parts", 1],
        ["parts", "0", "text"],
        ["parts", 0, "text", 0],
        ["nowhere"],
        [],
        "parts",
        ["parts", True],
    ]
    for path in paths:
        with pytest.raises(InvalidValueError, match="part"):
            ledger.redact(ids[1], part=path)
    with pytest.raises(InvalidValueError):
        ledger.redact(ids[1], part=["parts"], keep=lambda message: message.data)
    assert [ids[1]] == ledger.redact(ids[1], part=["parts", 0, "text"]).message_ids

    (_, kept, _) = ledger.get_messages("c")
    assert {"id": ids[1], "role": "user", "parts": [{"type": "text", "text": "[redacted]"}]} == kept.data
    assert [] == ledger.redact(ids[1], part=["parts", 0, "text"]).message_ids
    assert SECRET not in said(ledger)


CALLS = [
    {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for call_id in ("t1", "t2")
]
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "t2", "content": "rain"},
    {"role": "assistant", "content": "It is sunny"},
]


@pytest.mark.parametrize("redacted", range(len(TURNS)))
def test_what_models_get_of_a_redacted_message(ledger: Ledger, redacted: int) -> None:
    """A text in its place, which providers take; the result of a call goes on standing with it, and no call is without."""
    ledger.create_chat("c", "ada")
    ledger.append("c", [NewMessage(turn["role"], turn, id=f"m{number}") for number, turn in enumerate(TURNS)])
    ledger.redact(f"m{redacted}")
    shown = to_openai(ledger.get_messages("c"))

    whole = [dict(turn) for turn in TURNS]
    if redacted == 1:
        texts = [{"type": "text", "text": text} for text in ("[redacted]", "It is sunny")]
        assert [TURNS[0], {"role": "assistant", "content": texts}] == shown
    else:
        whole[redacted]["content"] = "[redacted]"
        assert whole == shown
    blocks = [message["content"] for message in to_anthropic(ledger.get_messages("c"))]
    assert all(blocks)


def test_anchors_and_proofs_of_before_hold(ledger: Ledger) -> None:
    """The chain is as it was; what is proven afterwards shows the message without its content."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    ids = fill(ledger)
    anchor = ledger.anchor(pem)
    earlier = ledger.prove(ids[1], anchor=anchor)
    ledger.redact(ids[1])
    for _ in range(2):
        ledger.verify(anchor=anchor)
        assert SECRET in check_excerpt(earlier).messages[0].text
        assert check_excerpt(ledger.prove(ids[1], anchor=anchor)).messages[0].data is None
        assert "about plants" == check_excerpt(ledger.prove(ids[0], anchor=anchor)).messages[0].text
        ledger.wait_erased()


def note_secret(ledger: Ledger) -> None:
    """Have the secret in title, metadata, an annotation and a run of a chat, and then say something else there."""
    ledger.create_chat("c", "ada", title="Plants")
    ledger.append("c", [spoken("m1", "about plants"), spoken("m2", "so do I")])
    ledger.update_chat("c", metadata={"kind": SECRET})
    ledger.update_chat("c", title=SECRET, metadata={"kind": "plant"})
    ledger.annotate("c", "m1", metadata={"note": SECRET})
    ledger.record_run("c", "r", thread_id="t", assistant_id="a", trigger_message_id="m1", metadata={"for": SECRET})
    ledger.update_chat("c", title="Vegetables")
    ledger.annotate("c", "m1", metadata={"note": "none"})
    ledger.update_run("c", "r", {"for": "us"})


def described(ledger: Ledger) -> str:
    """Everything that answers say of the chat itself, its annotations and runs, now, before, and in its history."""
    views: list[Ledger | LedgerView] = [ledger]
    views += [ledger.as_of(position) for position in range(1, ledger.position + 1)]
    return repr(
        [
            *((view.get_chat("c"), view.get_messages("c"), view.runs("c")) for view in views),
            [recorded.to_dict() for recorded in ledger.history("c")],
            ledger.export_chat("c"),
        ]
    )


def test_words_that_others_replaced_are_erased(world: tuple[Callable[[], Ledger], Path]) -> None:
    """Words that stand are as before, also where they stood beside replaced ones in one event, and in an index that is built anew."""
    opened, folder = world
    ledger = opened()
    note_secret(ledger)
    before = ledger.get_chat("c"), ledger.get_messages("c"), ledger.runs("c")
    assert SECRET in described(ledger)

    assert ledger.redact_words("c", reason="a plant") == 6
    assert ledger.redact_words("c") == 0
    assert SECRET not in described(ledger)
    ledger.wait_erased()
    assert ledger.verify().redaction_pending == ()
    ledger.rebuild()
    ledger.verify()
    after = ledger.get_chat("c"), ledger.get_messages("c"), ledger.runs("c")
    assert before[1:] == after[1:]
    assert before[0] is not None
    assert after[0] == msgspec.structs.replace(before[0], updated_at=after[0].updated_at if after[0] else 0)
    assert SECRET not in described(ledger)
    ledger.close()
    assert files_with(folder, SECRET.encode()) == []


@pytest.mark.usefixtures("_is_kept_back")
def test_until_the_log_is_rewritten_no_answer_has_replaced_words(ledger: Ledger) -> None:
    note_secret(ledger)
    ledger.redact_words("c")
    assert SECRET not in described(ledger)
    assert ("c",) == ledger.verify().redaction_pending
    ledger.rebuild()
    assert SECRET not in described(ledger)
    assert ("c",) == ledger.verify().redaction_pending


def test_only_the_owner_erases_replaced_words_and_no_hold_does(ledger: Ledger) -> None:
    note_secret(ledger)
    ledger.set_member("c", "bob", "writer")
    with pytest.raises(AccessDeniedError):
        ledger.for_user("bob").redact_words("c")
    for absent in (ledger.for_user("eve"), ledger):
        with pytest.raises(ChatNotFoundError):
            absent.redact_words("c" if absent is not ledger else "none")
    ledger.hold("chat", "c")
    with pytest.raises(HeldError):
        ledger.redact_words("c")
    ledger.release("chat", "c")
    with pytest.raises(InvalidValueError):
        ledger.redact_words("c", reason=7)  # type: ignore[arg-type]
    assert ledger.for_user("ada").redact_words("c") == 7  # with who held it and why


def test_a_backup_that_is_brought_up_to_date_loses_replaced_words(tmp_path: Path, ledger: Ledger) -> None:
    """With what a pseudonym took away from the same chat; what is restored from it is the same, and verifies."""
    note_secret(ledger)
    ledger.set_member("c", "bob", "reader")
    ledger.backup(tmp_path / "backup")
    assert files_with(tmp_path / "backup", SECRET.encode())
    ledger.redact_words("c")
    ledger.erase_user("bob", pseudonym="somebody")
    ledger.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with chatledger.open(tmp_path / "restored") as restored:
        assert restored.verify().redaction_pending == ()
        assert restored.get_chat("c") == ledger.get_chat("c")
        assert SECRET not in described(restored)
    assert files_with(tmp_path, SECRET.encode()) == []


def name_secret(ledger: Ledger) -> None:
    """Have the secret in the beginning of a chat, in names of branches and checkpoints and in why it was held; then nowhere of these."""
    ledger.create_chat("c", "ada", title=SECRET, metadata={"about": SECRET, "kind": "plant"})
    ledger.set_member("c", "bob", "writer")
    ledger.append("c", [spoken("m1", "about plants"), spoken("m2", "so do I")])
    ledger.rename_branch("c", "main", f"{SECRET}-v2")
    ledger.create_branch("c", SECRET, "m1", activate=True)
    ledger.append("c", spoken("m3", "and leeks"), branch=SECRET)
    ledger.move_head("c", SECRET, "m1", expected="m3")
    forked = ledger.fork("c", "m2").name
    assert SECRET in forked
    ledger.set_active_branch("c", f"{SECRET}-v2")
    ledger.set_checkpoint("c", SECRET, "m1")
    ledger.set_checkpoint("c", SECRET, "m2")
    ledger.set_checkpoint("c", "first", "m1")
    ledger.hold("chat", "c", reason=SECRET)
    ledger.release("chat", "c")
    ledger.update_chat("c", title="Plants", metadata={"about": None})
    ledger.rename_branch("c", SECRET, "leeks")
    ledger.rename_branch("c", f"{SECRET}-v2", "beets")
    ledger.delete_branch("c", forked)
    ledger.delete_checkpoint("c", SECRET)


def pointers(ledger: Ledger | LedgerView) -> tuple[object, ...]:
    return ledger.list_branches("c"), ledger.list_checkpoints("c"), ledger.members("c"), ledger.get_messages("c")


@pytest.mark.guard
def test_names_that_others_replaced_are_erased(world: tuple[Callable[[], Ledger], Path]) -> None:
    """So are the title and the metadata of the beginning, whose owner stays, and reasons of holds; what stands stays, in any index."""
    opened, folder = world
    ledger = opened()
    name_secret(ledger)
    before = pointers(ledger)
    assert SECRET in described(ledger)

    assert ledger.for_user("ada").redact_words("c")
    assert ledger.redact_words("c") == 3  # the hold itself, which is no user's
    assert ledger.redact_words("c") == 0
    assert SECRET not in described(ledger)
    ledger.wait_erased()
    assert ledger.verify().redaction_pending == ()
    assert before == pointers(ledger)
    assert ledger.fork("c", "m2").name == "beets-v2"
    after = ledger.get_chat("c"), pointers(ledger), described(ledger), ledger.list_chats(user_id="ada")
    ledger.rebuild()
    ledger.verify()
    assert after == (ledger.get_chat("c"), pointers(ledger), described(ledger), ledger.list_chats(user_id="ada"))
    assert ledger.fork("c", "m2", base="beets").name == "beets-v3"
    assert ledger.for_user("bob").members("c") == ledger.members("c")
    ledger.close()
    assert files_with(folder, SECRET.encode()) == []


def test_names_can_be_replaced_and_erased_again(ledger: Ledger) -> None:
    """In any order of renaming and erasing; earlier moments show each branch, under a name that says nothing where its own is gone."""
    name_secret(ledger)
    ledger.create_branch("c", "herbs", "m1")
    ledger.redact_words("c")
    for name in ("sage", "leeks", "mint"):
        other = "sage" if name == "leeks" else "leeks"
        ledger.rename_branch("c", other if name != "mint" else "leeks", name)
    ledger.rename_branch("c", "herbs", "leeks")
    assert ledger.redact_words("c") == 6
    before = pointers(ledger)
    for position in range(1, ledger.position + 1):
        earlier = ledger.as_of(position)
        names = {branch.name for branch in earlier.list_branches("c")}
        assert names <= {"main", "beets", "leeks", "mint", "redacted-0", "redacted-1", "redacted-2", "redacted-3"}
        assert len(earlier.list_chats(user_id="ada")) == 1
    ledger.rebuild()
    ledger.verify()
    assert pointers(ledger) == before


def test_a_name_that_stands_for_erased_ones_is_refused(ledger: Ledger) -> None:
    name_secret(ledger)
    ledger.create_branch("c", "redacted-1", "m1")
    with pytest.raises(InvalidValueError, match="rename it"):
        ledger.redact_words("c")
    ledger.rename_branch("c", "redacted-1", "r")
    assert ledger.redact_words("c")


@pytest.mark.usefixtures("_is_kept_back")
def test_until_the_log_is_rewritten_no_answer_has_replaced_names(ledger: Ledger) -> None:
    name_secret(ledger)
    ledger.redact_words("c")
    assert SECRET not in described(ledger)
    before = pointers(ledger), described(ledger)
    ledger.rebuild()
    assert before == (pointers(ledger), described(ledger))
    assert ("c",) == ledger.verify().redaction_pending


def test_what_is_redacted_while_it_is_read_is_read_without_its_large_data(ledger: Ledger) -> None:
    """A record that was read just before is not damage because its data are gone: what stands there now is read."""
    ledger.create_chat("c", "ada")
    ledger.append("c", NewMessage("user", "x" * (LARGE_BYTES + 1), id="m"))
    log: Any = internals(ledger).log
    page = log._select_page(0, limit=10)
    ledger.redact("m")
    ledger.wait_erased()
    assert [recorded.event.redacted for recorded in log._taken(page, log._mapper.read)][:2] == [(), (3,)]
