"""Ledgers of 0.1.0 stay readable as a whole: as they lay on a disk, from their backups, and by a program that knows the format's page only."""

import base64
import io
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, Final

import pytest
from tests.recorded.record_ledgers import FORMS, KEY, SAMPLE

import chatledger
from chatledger import Encryption, admin, user
from chatledger.importers import write_all

RECORDED: Final[dict[str, dict[str, str]]] = json.loads(SAMPLE.read_text())
pytestmark = pytest.mark.guard
READER: Final = Path(__file__).parents[2] / "tools" / "read_ledger.py"
Lines = list[dict[str, Any]]


@pytest.fixture(params=RECORDED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(name: str, tmp_path: Path) -> Path:
    """The files of a ledger, its backup and its export."""
    for path, content in RECORDED[name].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(zlib.decompress(base64.b64decode(content)))
    return tmp_path


def options_of(name: str, home: Path) -> dict[str, Any]:
    return {**FORMS[name.rpartition("-")[2]], "index": home / "index"}


def exported(ledger: chatledger.Ledger) -> Lines:
    stream = io.BytesIO()
    write_all(stream, ledger.export_all())
    return lines_of(stream.getvalue())


def lines_of(export: bytes) -> Lines:
    """The lines without the version of the export, and what version 6 says beside each of what is known besides."""
    lines: Lines = [json.loads(line) for line in export.splitlines()]
    return [
        {key: value for key, value in line.items() if key not in {"chat_id", "text"}}
        for line in lines
        if line.keys() != {"chatledger"}
    ]


def test_ledgers_are_opened_verified_and_continued(name: str, home: Path) -> None:
    """What lies on a disk opens with the log and the index of today, is sound, and takes more."""
    location = str(home / "ledger") if name.startswith("directory") else f"sqlite:///{home / 'ledger.db'}"
    with chatledger.open(location, **options_of(name, home)) as ledger:
        assert exported(ledger) == lines_of((home / "export.jsonl").read_bytes())
        ledger.verify()
        ledger.append("again", user("And on", id="later"))
        assert ledger.get_messages("again")[-1].id == "later"
        ledger.verify()


def test_backups_are_checked_and_restored(name: str, home: Path) -> None:
    """A backup restores into a log of today, with the same content."""
    target = f"sqlite:///{home / 'restored.db'}"
    encryption = Encryption(KEY) if name.endswith("encrypted") else None
    assert admin.check_backup(home / "backup", encryption=encryption).position
    admin.restore(home / "backup", target, encryption=encryption)
    with chatledger.open(target, encryption=encryption) as ledger:
        assert exported(ledger) == lines_of((home / "export.jsonl").read_bytes())


def test_program_written_from_the_page_agrees(name: str, home: Path) -> None:
    """It reads the chats of a backup as the export has them, and checks each hash on the way."""
    key = [KEY] if name.endswith("encrypted") else []
    command: list[Any] = [sys.executable, READER, home / "backup", *key]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    chats, of_export = chats_in(lines_of(told)), chats_in(lines_of((home / "export.jsonl").read_bytes()))
    assert chats == of_export
    assert set(chats) == {"trip", "again", "named", *(["chat"] if name.endswith("zstd") else [])}


def test_program_is_short() -> None:
    """Whoever has to port it reads it in one sitting."""
    assert len(READER.read_text(encoding="utf-8").splitlines()) <= 250


def test_program_reads_what_lost_its_names(tmp_path: Path) -> None:
    """The owner, and what branches are called, stand in later events than those that said so first."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada", title="Riga with Mia")
        ledger.append("trip", user("Where to?", id="m1"))
        ledger.rename_branch("trip", "main", "Mia")
        ledger.create_branch("trip", "of Mia", "m1", activate=True)
        for name in ("Mia", "first"):
            ledger.set_checkpoint("trip", name, "m1")
        ledger.delete_checkpoint("trip", "Mia")
        ledger.rename_branch("trip", "Mia", "north")
        ledger.delete_branch("trip", "of Mia")
        ledger.update_chat("trip", title="Riga")
        assert ledger.redact_words("trip") == 8
        ledger.wait_erased()
        ledger.backup(tmp_path / "backup")
        told = subprocess.run([sys.executable, READER, tmp_path / "backup"], capture_output=True, check=True).stdout
        assert b"Mia" not in told
        assert chats_in(lines_of(told)) == chats_in(exported(ledger))


def test_program_reads_merges(tmp_path: Path) -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", user("Where to?", id="m1"))
        ledger.create_branch("trip", "idea", "m1")
        ledger.append("trip", user("The coast.", id="m2"), branch="idea")
        ledger.merge("trip", "idea", summary="It was the coast.")
        ledger.backup(tmp_path / "backup")
        told = subprocess.run([sys.executable, READER, tmp_path / "backup"], capture_output=True, check=True).stdout
        assert b'"merged_from"' in told
        assert chats_in(lines_of(told)) == chats_in(exported(ledger))


def chats_in(lines: Lines) -> dict[str, Lines]:
    """The lines of each chat."""
    chats: dict[str, Lines] = {}
    chat: Lines = []
    for line in lines:
        if "chat" in line:
            chat = chats.setdefault(line["chat"]["id"], [])
        for run in (line.get("run"), *line.get("regeneration", {}).get("runs", [])):
            if run:  # which the export leaves out only sometimes
                run.setdefault("runtime", "python")
        if line.keys() & {"chat", "message", "branch", "checkpoint", "run", "regeneration", "end"}:
            chat.append(line)
    return chats


@pytest.mark.parametrize("damage", ["segment", "manifest", "key"])
def test_program_says_what_is_wrong(damage: str, tmp_path: Path) -> None:
    """Damage and a missing key end it with a sentence."""
    for path, content in RECORDED["sqlite-encrypted"].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(zlib.decompress(base64.b64decode(content)))
    if damage != "key":
        (file,) = (tmp_path / "backup").glob(f"*{damage}*")
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 1
        file.write_bytes(raw)
    command: list[Any] = [sys.executable, READER, tmp_path / "backup"]
    told = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (told.returncode, told.stdout) == (1, "")
    assert len(told.stderr.splitlines()) == 1
    assert {"segment": "segment", "manifest": "manifest", "key": "key"}[damage] in told.stderr
