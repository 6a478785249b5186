"""The power goes soon after something was made: with `durability="fast"` its description must be on the disk all the same."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.deaths import kill_server
from tests.faults.nursery import ROOT
from tests.faults.powercuts import GRACE_S
from tests.faults.powerdisk import PowerDisk, after_boot, powered, why_missing
from tests.support.ledger_world import text

import chatledger
from chatledger import admin
from chatledger.infra.log.blobs import Blobs
from chatledger.infra.log.nats.event_log import BLOBS
from chatledger.infra.log.nats_server.directory import Durability
from chatledger.projections.operating_system import sync

pytestmark = [
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
    pytest.mark.xdist_group("faults of machines"),
]
LARGE = "x" * 2_000_000
LOOK = """
import json, sys, chatledger
with chatledger.open(sys.argv[1]) as ledger:
    texts = {chat.id: [message.text[:20] for message in ledger.get_messages(chat.id)] for chat in ledger.list_chats()}
    live = [chunk.data for chunk in ledger.read_live("c", "s", follow=False)] if len(sys.argv) > 2 else []
    feed = [recorded.position for recorded in ledger.feed(name="n", follow=False)] if len(sys.argv) > 2 else []
    ledger.upsert_chat("after", "u")
    ledger.append("after", [chatledger.user("writing goes on")])
    ledger.verify()
print(json.dumps({"texts": texts, "live": live, "feed": feed}))
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerDisk]:
    with powered(tmp_path_factory.mktemp("power")) as running:
        yield running


def cut(disk: PowerDisk, base: Path, name: str, *more: str) -> Any:
    """Cut the power, with nothing left of what was not flushed but names; returns what the ledger says after a boot."""
    with (disk.folder / "other").open(
        "ab"
    ) as other:  # brings the names of all files to the disk, and the content of one
        other.write(b".")
        other.flush()
        os.fsync(other.fileno())
    mounted = base / "mnt"
    command = [sys.executable, "-c", LOOK, str(mounted / name), *more]
    image = disk.cut("none", "")
    done = subprocess.run(
        after_boot(image, mounted, command), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    image.unlink()
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("durability", [pytest.param("always", marks=pytest.mark.soak), "fast"])
def test_a_new_ledger(durability: Durability, disk: PowerDisk, tmp_path: Path) -> None:
    """It opens at once; with "always" everything that was acknowledged is there."""
    with chatledger.open(disk.folder / durability, durability=durability) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("first")])
        found = cut(disk, tmp_path, durability)["texts"]
    assert found["c"] == ["first"] if durability == "always" else found.get("c") in (None, [], ["first"])


def test_streams_that_are_made_at_their_first_use(disk: PowerDisk, tmp_path: Path) -> None:
    """Large data, the position of a named feed, and an answer that is being written."""
    with chatledger.open(disk.folder / "used", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text(LARGE)])
        assert [recorded.position for recorded in ledger.feed(name="n", follow=False)] == [1, 2]
        ledger.append("c", [text("last")])
        with ledger.live("c", id="s") as answer:
            answer.write("chunk")
            answer.flush()
            time.sleep(GRACE_S)
            found = cut(disk, tmp_path, "used", "with the others")
            answer.discard()
    assert found == {"texts": {"c": [LARGE[:20], "last"]}, "live": ["chunk"], "feed": [3]}


@pytest.mark.soak
def test_large_data_are_on_the_disk_before_what_refers_to_them(
    disk: PowerDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may bring the log to the disk before files that were written earlier."""
    with chatledger.open(disk.folder / "large", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text(f"0 {LARGE}")])
        time.sleep(GRACE_S)
        monkeypatch.setattr(Blobs, "release", lambda *_: None)  # the power goes before that
        ledger.append("c", [text(f"1 {LARGE}")])
        for block in (disk.folder / "large").glob("log/**/msgs/*.blk"):
            if not block.parent.parent.name.endswith(BLOBS):
                sync(block)
        assert cut(disk, tmp_path, "large")["texts"] == {"c": [f"{number} {LARGE}"[:20] for number in range(2)]}


def test_a_server_that_was_killed_before(disk: PowerDisk, tmp_path: Path) -> None:
    """What it had not synced yet is synced by the next one."""
    with chatledger.open(disk.folder / "killed", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("first")])
        kill_server(disk.folder / "killed")
        ledger.sync()
        time.sleep(GRACE_S)
        assert cut(disk, tmp_path, "killed")["texts"] == {"c": ["first"]}


@pytest.mark.soak
def test_a_stream_whose_settings_changed(disk: PowerDisk, tmp_path: Path) -> None:
    """A restored ledger: while it was filled, its stream was marked as partial."""
    with chatledger.open(tmp_path / "source", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("first")])
        ledger.backup(tmp_path / "backup")
    admin.restore(tmp_path / "backup", disk.folder / "restored")
    assert cut(disk, tmp_path, "restored")["texts"] == {"c": ["first"]}
