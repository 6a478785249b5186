"""
Ledgers of 0.1.0 as they lay on disks, which are opened for ever: `python -m tests.recorded.record_ledgers`.

One of each kind of log, and of each form of records: its own files, a backup of it, and its export. What is there is never written anew.
"""

import base64
import json
import tempfile
import zlib
from itertools import product
from pathlib import Path
from typing import Any, Final

from tests.recorded.record_export import fill

import chatledger
from chatledger import Encryption, assistant, user
from chatledger.importers import write_all

SAMPLE: Final = Path(__file__).parent / "ledgers.json"
KEY: Final = "2026:gM8lW8ZI6JZqt9E0LL7uVWu/Potsz3f9aOjHC2npRc8="
LOGS: Final = ("directory", "sqlite")
FORMS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"compression": "none"},
    "zstd": {"compression": "zstd"},
    # An index in memory would outlive a test, and has seen what the last run of it added.
    "encrypted": {"compression": "zstd", "encryption": Encryption(KEY, index_at_rest="plain")},
}
_LEFT_OUT: Final = {"index", "ledger.db-index", "lock", "nats.conf", "server.log"}
"""Files that are made anew when a ledger is opened, and name places of the machine."""


def write_chats(ledger: chatledger.Ledger) -> None:
    """Write chats in which each kind of event is."""
    ledger.create_chat("trip", "ada", title="A trip", metadata={"tags": ["riga", 1, 2.5, None]})
    ledger.append("trip", [user("Where to?", id="m1", sender_id="ada"), assistant("**Riga**, in May 🦜", id="m2")])
    ledger.append(
        "trip",
        [{"role": "user", "content": "How far?"}, {"role": "assistant", "content": [{"type": "text", "text": "6 h"}]}],
    )
    ledger.append("trip", [user("half \ud83e of it", id="m3"), user(json.dumps({"n": 2**70}), id="m4")])
    ledger.append("trip", [chatledger.NewMessage("tool", {"n": 2**70, "\ud83e": -(2**63)}, id="m5", type="result")])
    ledger.append(
        "trip", [user("a long text " * 30_000, id="m6"), chatledger.NewMessage("tool", ["ä" * 99_000] * 3, id="m7")]
    )
    ledger.create_branch("trip", "other", "m1", activate=True)
    ledger.append(
        "trip", [assistant("Tallinn", id="m8"), user("Card 4111 1111 1111 1111", id="m9"), user("A secret", id="m10")]
    )
    ledger.create_branch("trip", "gone", "m8")
    ledger.delete_branch("trip", "gone")
    ledger.rename_branch("trip", "other", "north")
    ledger.move_head("trip", "main", "m5", expected="m7")
    ledger.set_active_branch("trip", "main")
    ledger.set_checkpoint("trip", "first", "m1")
    ledger.set_checkpoint("trip", "first", "m2")
    ledger.set_checkpoint("trip", "last", "m3")
    ledger.delete_checkpoint("trip", "last")
    ledger.set_member("trip", "bob", "reader")
    ledger.set_member("trip", "eve", "reader")
    ledger.set_member("trip", "bob", "writer")
    ledger.remove_member("trip", "eve")
    ledger.redact("m9", keep=lambda _: "Card removed", reason="a card number")
    ledger.redact("m10")
    ledger.redact("m9", keep="Nothing of it")
    ledger.annotate("trip", "m2", hidden=True, metadata={"score": 1})
    ledger.annotate("trip", "m1", stale=True)
    ledger.annotate("trip", "m1", stale=False)
    ledger.record_run("trip", "r1", thread_id="t", assistant_id="a", trigger_message_id="m1", metadata={"tokens": 7})
    ledger.complete_run("trip", "r1", message_id="m2", checkpoint_id="c1")
    ledger.record_run(
        "trip", "r2", thread_id="t", assistant_id="b", runtime="langgraph", trigger_message_id="m2", references=["m1"]
    )
    ledger.fail_run("trip", "r2")
    ledger.update_chat("trip", title="A trip with Mia")
    ledger.update_chat("trip", title="A trip to Riga", ttl_seconds=10**9)
    ledger.redact_words("trip")
    with ledger.context(actor="clerk", correlation_id="case-7"):
        ledger.hold("chat", "trip", reason="court")
        ledger.append("trip", user("Go on", id="m11"))
    ledger.create_branch("trip", "edited", None)
    ledger.append("trip", user("Where to, then?", id="m12"), branch="edited")
    plan = ledger.plan_regeneration("trip", "m1")
    begun = ledger.begin_regeneration(plan, new_message_id="m12", branch="edited")
    ledger.repeat_run("trip", begun.id, begun.ready[0].repeats.run_id, run_id="r3")
    ledger.create_link("trip")
    ledger.create_chat("named", "ada")
    ledger.set_member("named", "mia", "writer")
    with ledger.context(actor="mia"):
        ledger.append(
            "named", [user("It was me", id="n1", sender_id="mia"), user("And this too", id="n2", sender_id="mia")]
        )
        ledger.redact("n2", reason="mine")
    ledger.erase_user("mia", pseudonym="a former user")
    ledger.create_chat("again", "ada")
    ledger.append("again", "was here")
    ledger.delete_chat("again")
    ledger.create_chat("again", "bob", title="Anew")
    ledger.append("again", [user(f"message {number}") for number in range(40)])
    ledger.create_chat("never", "ada")
    ledger.delete_chat("never")
    ledger.wait_erased()


def main() -> None:
    """Write the file once."""
    recorded: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for log, form in product(LOGS, FORMS):
            home = Path(folder) / f"{log}-{form}"
            home.mkdir()
            location = str(home / "ledger") if log == "directory" else f"sqlite:///{home / 'ledger.db'}"
            with chatledger.open(location, index=home / "index", **FORMS[form]) as ledger:
                write_chats(ledger)
                if form == "zstd":  # once is enough, as these take most of the file
                    fill(ledger)
                ledger.backup(home / "backup")
                with (home / "export.jsonl").open("wb") as stream:
                    write_all(stream, ledger.export_all())
            recorded[home.name] = {
                str(path.relative_to(home)): base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()
                for path in sorted(home.rglob("*"))
                if path.is_file() and not _LEFT_OUT.intersection(path.relative_to(home).parts)
            }
    with SAMPLE.open("x") as stream:
        json.dump(recorded, stream, indent=0)


if __name__ == "__main__":
    main()
