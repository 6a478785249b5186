"""The table of `delete-a-chat.md`, row by row: which call deletes what, and what a hold on its owner does about that."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from tests.support.files_in_clear import files_with

import chatledger
from chatledger import Ledger, user
from chatledger.domain.legal_hold import HoldKind
from chatledger.domain.retention import RetentionKind
from chatledger.domain.versioned.keys import item_id
from chatledger.errors import HeldError
from chatledger.graph_state import StateStore
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.ledger.threads import Threads
from chatledger.langgraph import LedgerSaver

from .test_holds import put_thread

ROOT = Path(__file__).parents[3]
SECRETS = {
    "chat": "secret of the chat",
    "title": "secret of the title",
    "branch": "secret of the branch",
    "checkpoint": "secret of the checkpoint",
    "hold": "secret of the hold",
    "value_holds": "secret of three holds",
    "state": "secret of the state",
    "earlier": "secret of an earlier version",
    "item": "secret of the item",
}
OF_VALUES = {"state", "earlier", "item", "value_holds"}
OF_CHAT = {*SECRETS} - OF_VALUES
STATE = "chat:ada:trip"


class Row(NamedTuple):
    """A row of the table: how to call it, and whose secrets are in no file afterwards."""

    call: Callable[[Ledger], object]
    gone: set[str]


def delete_values(ledger: Ledger) -> None:
    own = ledger.for_user("ada")
    Threads(own).delete("alone")
    StateStore(own).delete(STATE)
    ItemStore(own).delete(("memories",), "card")


def sweep_parts(ledger: Ledger, erases: Literal["content", "versions"]) -> None:
    for rule in ledger.retention():
        ledger.remove_retention(rule.name)
    for kind in ("chat",) if erases == "content" else ("thread", "state", "item"):
        ledger.set_retention(f"parts of {kind}", kind=kind, keep_days=7, erases=erases)  # type: ignore[arg-type]  # a kind
    ledger.sweep(now=2**42)


def change_pointers(ledger: Ledger) -> None:
    own = ledger.for_user("ada")
    head = own.get_messages("trip")[-1].id
    own.create_branch("trip", "draft", head)
    own.move_head("trip", "main", None, expected=head)
    own.delete_branch("trip", "draft")
    own.annotate("trip", head, hidden=True)
    ItemStore(own).end(("memories",), "card")


ROWS = {
    "delete_chat": Row(lambda ledger: ledger.delete_chat("trip"), {*OF_CHAT, "state", "earlier"}),
    "Threads.delete": Row(delete_values, OF_VALUES),
    "redact": Row(lambda ledger: ledger.redact(ledger.get_messages("trip")[0].id), {"chat"}),
    "redact_words": Row(lambda ledger: ledger.redact_words("trip"), OF_CHAT - {"chat"}),
    "prune": Row(lambda ledger: LedgerSaver(ledger.for_user("ada")).prune(["alone"]), set()),
    "sweep": Row(lambda ledger: ledger.sweep(now=2**42), {*SECRETS}),
    'erases="content"': Row(lambda ledger: sweep_parts(ledger, "content"), {"chat"}),
    'erases="versions"': Row(lambda ledger: sweep_parts(ledger, "versions"), {"earlier"}),
    "erase_user": Row(lambda ledger: ledger.erase_user("ada"), {*SECRETS}),
    "delete_branch": Row(change_pointers, set()),
}


def table() -> dict[str, str]:
    """Return what the table says of a hold, by the first call of each row."""
    text = (ROOT / "docs/how-to/delete-a-chat.md").read_text(encoding="utf-8")
    section = text.split("## Which call deletes what")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return {cells[0].split("`")[1]: cells[-1].strip() for cells in rows}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with chatledger.open(tmp_path / "ledger") as ledger:
        own = ledger.for_user("ada")
        own.create_chat("trip", "ada", title=SECRETS["title"])
        own.append("trip", [user(SECRETS["chat"])])
        own.create_branch("trip", SECRETS["branch"], None)
        own.set_checkpoint("trip", SECRETS["checkpoint"], own.get_messages("trip")[0].id)
        ledger.hold("chat", "trip", reason=SECRETS["hold"])
        ledger.release("chat", "trip")
        own.update_chat("trip", title="A trip")
        own.rename_branch("trip", SECRETS["branch"], "other")
        own.delete_checkpoint("trip", SECRETS["checkpoint"])
        for step in range(2):
            put_thread(own, "alone", step=step)
        for kind in ("earlier", "state"):
            StateStore(own).put(STATE, {"said": SECRETS[kind]})
        ItemStore(own).put(("memories",), "card", {"said": SECRETS["item"]})
        held: list[tuple[HoldKind, str]] = [
            ("thread", "alone"),
            ("state", STATE),
            ("item", item_id("ada", ("memories",), "card")),
        ]
        for kind, held_id in held:
            ledger.hold(kind, held_id, reason=SECRETS["value_holds"])
            ledger.release(kind, held_id)
        ruled: tuple[RetentionKind, ...] = ("chat", "thread", "state", "item")
        for rule in ruled:
            ledger.set_retention(rule, kind=rule, keep_days=90)
        yield ledger


def left(ledger: Ledger, folder: Path) -> set[str]:
    ledger.wait_erased()
    return {kind for kind, secret in SECRETS.items() if files_with(folder, secret.encode())}


def test_the_table_has_these_rows() -> None:
    assert table().keys() == ROWS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_what_goes_is_in_no_file(ledger: Ledger, tmp_path: Path, name: str) -> None:
    assert left(ledger, tmp_path) == {*SECRETS}
    ROWS[name].call(ledger)
    assert left(ledger, tmp_path) == {*SECRETS} - ROWS[name].gone


@pytest.mark.parametrize("name", ROWS)
def test_under_a_hold_nothing_goes(ledger: Ledger, tmp_path: Path, name: str) -> None:
    ledger.hold("user", "ada")
    if table()[name].startswith("`HeldError`"):
        with pytest.raises(HeldError):
            ROWS[name].call(ledger)
    else:
        ROWS[name].call(ledger)
    assert left(ledger, tmp_path) == {*SECRETS}
    assert ledger.verify().broken_holds == ()
