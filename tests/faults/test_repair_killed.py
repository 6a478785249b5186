"""A repair that is killed at any instant leaves the damaged directory or the repaired one; running it again ends it."""

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.backup_world import block, content, fill, word
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import admin, user
from chatledger.infra.admin.doctor import repairing

REPAIR = "import sys; from chatledger import admin; admin.repair(sys.argv[1])"
ROUNDS = 14 if IS_SOAK else 2


def damaged(data: Path) -> None:
    with chatledger.open(data, durability="fast", compression="none") as ledger:
        fill(ledger)
        ledger.append("c", [user("L" * 300_000)])
    raw = bytearray(block(data).read_bytes())
    raw[raw.index(word("a", 1).encode()) + 1] ^= 0x11
    block(data).write_bytes(raw)
    shutil.rmtree(data / "index")


def can_not(*_: object) -> bool:
    return False


def texts(data: Path) -> list[str]:
    with chatledger.open(data) as ledger:
        ledger.verify()
        return [message.text for message in ledger.get_messages("c")]


@pytest.mark.soak
def test_killed_at_random_instants(tmp_path: Path) -> None:
    """Each time one of the two is whole under the name, the damaged one is somewhere unchanged, and a second run ends it."""
    original = tmp_path / "original"
    damaged(original)
    log = content(original / "log" / "jetstream")
    begun = time.monotonic()
    shutil.copytree(original, tmp_path / "timed")
    subprocess.run([sys.executable, "-c", REPAIR, tmp_path / "timed"], check=True)
    taken_s = time.monotonic() - begun
    drawn = random.Random(11)
    outcomes: list[str] = []
    for number in range(ROUNDS):
        data = tmp_path / f"round-{number}" / "data"
        shutil.copytree(original, data)
        for _ in range(2):
            child = subprocess.Popen([sys.executable, "-c", REPAIR, data])
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(drawn.uniform(0.3, 1.1) * taken_s)
            child.send_signal(signal.SIGKILL)
            child.wait()
            kept = list(data.parent.glob("data.damaged-*"))
            assert data.is_dir()
            if content(data / "log" / "jetstream") == log:
                outcomes.append("damaged")
            else:
                outcomes.append("repaired")
                assert any(content(path / "log" / "jetstream") == log for path in kept)
        done = admin.repair(data)
        assert not (data.parent / "data.repairing").exists()
        assert done.cut == ("a",) or done.kept_as is None
        assert len(texts(data)) == 5
        assert {finding.kind for finding in admin.diagnose(data).findings if finding.severity == "error"} == {
            "quarantined"
        }
        admin.give_up(data, "a")
        with chatledger.open(data) as ledger:
            assert [message.text for message in ledger.get_messages("a")][2:] == [word("a", 2), word("a", 3)]

    print(outcomes)


@pytest.mark.soak
@pytest.mark.parametrize("has_exchange", [True, False])
def test_killed_between_the_steps_of_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_exchange: bool
) -> None:
    """Also on systems that cannot exchange two names at once, where for a moment nothing has the name."""
    data = tmp_path / "data"
    damaged(data)
    log = content(data / "log" / "jetstream")
    if not has_exchange:
        monkeypatch.setattr(repairing, "_exchange", can_not)

    class KilledError(BaseException):
        pass

    rename = Path.rename
    for step in range(5):
        left = step

        def counting(self: Path, target: Path) -> Path:
            nonlocal left
            if left == 0 and self.parent in {tmp_path, tmp_path / "data.repairing"}:
                raise KilledError
            left -= self.parent in {tmp_path, tmp_path / "data.repairing"}
            return rename(self, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", counting)
            try:
                admin.repair(data)
            except KilledError:
                pass
            else:
                break
        everything = [path for path in (data, *tmp_path.glob("data.damaged-*")) if path.exists()]
        assert any(content(path / "log" / "jetstream") == log for path in everything)
    admin.repair(data)

    assert len(texts(data)) == 5
    assert any(content(path / "log" / "jetstream") == log for path in tmp_path.glob("data.damaged-*"))
