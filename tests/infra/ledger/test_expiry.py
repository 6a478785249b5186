"""Chats that end: when they are due, who deletes them, and that nobody else's are touched."""

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import together
from tests.support.soak import examples

import chatledger
from chatledger import InvalidValueError, Ledger, NewMessage
from chatledger.infra.entrypoints.cli.app import cli

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)
NOON_MS = 1_770_465_600_000


def ids(ledger: Ledger) -> set[str]:
    return {chat.id for chat in ledger.list_chats()}


def test_a_moment_in_either_form(ledger: Ledger) -> None:
    """Milliseconds, or a datetime of any zone; None is never."""
    zone = NOON.astimezone(datetime.strptime("+0530", "%z").tzinfo)
    assert ledger.create_chat("a", "ada", expires_at=NOON_MS).expires_at == NOON_MS
    assert ledger.create_chat("b", "ada", expires_at=zone).expires_at == NOON_MS
    assert ledger.upsert_chat("c", "ada", expires_at=NOON).expires_at == NOON_MS
    assert ledger.create_chat("d", "ada").expires_at is None
    assert [chat.expires_at for chat in sorted(ledger.list_chats(), key=lambda chat: chat.id)] == [NOON_MS] * 3 + [None]


def test_a_moment_as_text(ledger: Ledger) -> None:
    """An end is ISO 8601 and no word, as `7d` is a week ago; a sweep is as of any time that `since` takes."""
    assert ledger.create_chat("a", "ada", expires_at="2026-02-07T12:00:00").expires_at == NOON_MS
    assert ledger.update_chat("a", expires_at="2026-02-07T17:30:00+05:30").expires_at == NOON_MS
    assert ledger.update_chat("a", updater=lambda chat: {"expires_at": "2026-02-07"}).expires_at == NOON_MS - 43_200_000
    for word in ("7d", "yesterday"):
        with pytest.raises(InvalidValueError, match=f"expires_at: '{word}' is no time in ISO 8601"):
            ledger.update_chat("a", expires_at=word)

    assert ledger.due_chats(now="2026-02-06") == []
    assert ledger.due_chats(now="2026-02-08") == ["a"]
    ledger.update_chat("a", ttl_seconds=60)
    assert ledger.due_chats(now="yesterday") == []
    with pytest.raises(InvalidValueError, match="now: 'soon' is no time"):
        ledger.sweep(now="soon")


def test_a_time_to_live_counts_from_the_command(ledger: Ledger) -> None:
    chat = ledger.create_chat("a", "ada", ttl_seconds=1.5)
    changed = ledger.update_chat("a", ttl_seconds=60)

    assert chat.expires_at == chat.created_at + 1500
    assert changed.updated_at + 60_000 == changed.expires_at


def test_it_can_be_changed_and_cleared(ledger: Ledger) -> None:
    """Absent leaves, None clears, the same writes nothing, also by an updater."""
    ledger.create_chat("a", "ada", title="t", expires_at=NOON_MS)
    assert ledger.update_chat("a", title="u").expires_at == NOON_MS
    position = ledger.position
    ledger.update_chat("a", expires_at=NOON_MS)
    assert ledger.position == position
    assert ledger.update_chat("a", expires_at=None).expires_at is None
    assert ledger.update_chat("a", updater=lambda chat: {"expires_at": NOON}).expires_at == NOON_MS
    assert [
        recorded.to_dict()["payload"]["changes"] for recorded in ledger.history("a") if recorded.type == "chat_updated"
    ] == [{"title": "u"}, {"expires_at": None}, {"expires_at": NOON_MS}]


@pytest.mark.parametrize(
    "arguments",
    [
        {"expires_at": "soon"},
        {"expires_at": 1.5},
        {"expires_at": True},
        {"expires_at": 2**63},
        {"expires_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is refused
        {"ttl_seconds": 0},
        {"ttl_seconds": -1},
        {"ttl_seconds": float("nan")},
        {"ttl_seconds": float("inf")},
        {"ttl_seconds": "1"},
        {"ttl_seconds": True},
        {"ttl_seconds": 1, "expires_at": 5},
    ],
    ids=str,
)
def test_what_is_no_moment_is_refused(ledger: Ledger, arguments: dict[str, Any]) -> None:
    ledger.create_chat("there", "ada")
    with pytest.raises(InvalidValueError):
        ledger.create_chat("a", "ada", **arguments)
    with pytest.raises(InvalidValueError):
        ledger.upsert_chat("a", "ada", **arguments)
    with pytest.raises(InvalidValueError):
        ledger.update_chat("there", **arguments)
    assert ids(ledger) == {"there"}


def test_until_the_sweep_it_is_there(ledger: Ledger) -> None:
    """A chat that is due is read and written like any other; being due deletes nothing by itself."""
    ledger.create_chat("a", "ada", expires_at=1)
    ledger.append("a", [NewMessage("user", "still here")])

    assert [message.text for message in ledger.get_messages("a")] == ["still here"]
    assert ledger.due_chats() == ["a"]
    assert ledger.sweep().chats == ["a"]
    assert ledger.get_chat("a") is None
    assert ledger.sweep().chats == []


def test_the_last_millisecond(ledger: Ledger) -> None:
    """Due at `expires_at`, not before; the longest due first; `limit` counts them."""
    for number in (3, 1, 2):
        ledger.create_chat(f"c{number}", "ada", expires_at=NOON_MS + number)
    ledger.create_chat("for ever", "ada")

    assert ledger.sweep(now=NOON).chats == []
    assert ledger.due_chats(now=NOON_MS + 3) == ["c1", "c2", "c3"]
    assert ledger.sweep(now=NOON_MS + 3, limit=0).chats == []
    assert ledger.sweep(now=NOON + timedelta(milliseconds=2), limit=1).chats == ["c1"]
    assert ledger.sweep(now=NOON_MS + 2).chats == ["c2"]
    assert ids(ledger) == {"c3", "for ever"}


def test_who_did_it(ledger: Ledger) -> None:
    """The sweeper, unless the caller says who; the tombstone stays, the content goes."""
    ledger.create_chat("a", "ada", expires_at=1)
    ledger.create_chat("b", "ada", expires_at=2)
    ledger.sweep(now=1)
    with ledger.context(actor="night watch"):
        ledger.sweep(now=2)

    assert [(recorded.type, recorded.actor) for recorded in ledger.history()] == [
        ("chat_deleted", "chatledger:sweeper"),
        ("chat_deleted", "night watch"),
    ]


actions = st.lists(
    st.tuples(st.sampled_from(["create", "update", "delete"]), st.integers(0, 4), st.none() | st.integers(-5, 5))
    | st.tuples(st.sampled_from(["sweep", "rebuild"]), st.just(0), st.integers(-5, 5)),
    max_size=25,
)


@given(actions)
@settings(max_examples=examples(40), deadline=None)
def test_against_a_dictionary(story: list[tuple[str, int, int | None]]) -> None:
    """Whatever happens to chats, a sweep deletes exactly those that are due, also after a rebuild."""
    with chatledger.open("memory:") as ledger:
        known = dict[str, int | None]()
        for action, number, time_ms in story:
            chat_id = f"c{number}"
            if action == "create" and chat_id not in known:
                ledger.create_chat(chat_id, "ada", expires_at=time_ms)
                known[chat_id] = time_ms
            elif action == "update" and chat_id in known:
                ledger.update_chat(chat_id, expires_at=time_ms)
                known[chat_id] = time_ms
            elif action == "delete":
                assert ledger.delete_chat(chat_id) == (chat_id in known)
                known.pop(chat_id, None)
            elif action == "rebuild":
                ledger.rebuild()
            elif action == "sweep":
                assert time_ms is not None
                due = {one for one, at in known.items() if at is not None and at <= time_ms}
                assert set(ledger.sweep(now=time_ms).chats) == due
                for one in due:
                    del known[one]
        assert {chat.id: chat.expires_at for chat in ledger.list_chats()} == known


def test_many_at_once(ledger: Ledger) -> None:
    """More than one page of them."""
    for number in range(230):
        ledger.create_chat(f"c{number:03d}", "ada", expires_at=number)

    assert ledger.sweep(now=209).chats == [f"c{number:03d}" for number in range(210)]
    assert len(ids(ledger)) == 20


def test_one_that_is_given_more_time_stays(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at what is due and the deletion, another may have prolonged or deleted it."""
    ledger.create_chat("a", "ada", expires_at=NOON_MS)
    ledger.create_chat("b", "ada")

    def outdated(*_: object, **__: object) -> list[str]:
        return ["a", "b", "gone"]

    monkeypatch.setattr("chatledger.infra.ledger.sweeper.due_chats", outdated)

    assert ledger.sweep(now=NOON_MS - 1).chats == []
    assert ids(ledger) == {"a", "b"}


def test_threads_delete_each_once(ledger: Ledger) -> None:
    """Of several sweeps at once, one deletes a chat: one tombstone, and one says so."""
    for number in range(20):
        ledger.create_chat(f"c{number}", "ada", expires_at=1)
    swept = together(4, lambda _: ledger.sweep().chats)

    assert sorted(chain.from_iterable(swept)) == sorted(f"c{number}" for number in range(20))
    assert [recorded.type for recorded in ledger.history()] == ["chat_deleted"] * 20


SWEEP = "import sys, chatledger\nwith chatledger.open(sys.argv[1]) as ledger:\n    print(*ledger.sweep().chats)"


@pytest.mark.soak
def test_processes_delete_each_once(tmp_path: Path) -> None:
    location = f"sqlite:///{tmp_path}/log.db"
    with chatledger.open(location) as ledger:
        for number in range(20):
            ledger.create_chat(f"c{number}", "ada", expires_at=1)
        command = [sys.executable, "-c", SWEEP, location]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        swept = [child.communicate()[0].split() for child in children]
        ledger.sync()

        assert sorted(swept[0] + swept[1]) == sorted(f"c{number}" for number in range(20))
        assert [recorded.type for recorded in ledger.history()] == ["chat_deleted"] * 20


def test_in_the_background(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread sweeps until the ledger is closed; what fails is logged and tried again."""
    failures = [chatledger.LogUnavailableError("not now")]
    sweep = Ledger.sweep

    def failing(self: Ledger, **kwargs: Any) -> chatledger.Swept:
        if failures:
            raise failures.pop()
        return sweep(self, **kwargs)

    monkeypatch.setattr(Ledger, "sweep", failing)
    with chatledger.open("memory:", sweep_every_s=0.01) as ledger:
        ledger.create_chat("a", "ada", ttl_seconds=0.05)
        ledger.create_chat("b", "ada")
        deadline = time.monotonic() + 20
        while ledger.get_chat("a") is not None and time.monotonic() < deadline:
            time.sleep(0.01)

        assert ids(ledger) == {"b"}
    assert "not now" in caplog.text
    assert "chatledger-sweeper" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("pause", [0, -1, True, "5", float("nan"), float("inf")], ids=str)
def test_what_is_no_pause_is_refused(tmp_path: Path, pause: Any) -> None:
    """Before anything is opened."""
    with pytest.raises(InvalidValueError):
        chatledger.open(tmp_path / "data", sweep_every_s=pause)
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path) -> None:
    """`sweep --dry-run` says what `sweep` deletes."""
    location = f"sqlite:///{tmp_path}/log.db"
    with chatledger.open(location) as ledger:
        ledger.create_chat("a", "ada", expires_at=1)
        ledger.create_chat("b", "ada")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(cli, ["sweep", "--location", location, *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert run("--dry-run").splitlines() == ["a", "1 chat due."]
    assert run("--dry-run", "--json") == '{"due":["a"],"versioned":0,"messages":0,"versions":0}\n'
    assert run("--json") == '{"deleted":["a"],"versioned":0,"messages":0,"versions":0}\n'
    assert run().splitlines() == ["Deleted 0 chats."]
