"""Compressed files that become far larger than they are: refused with the limit, before memory or disk is full."""

import contextlib
import gzip
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.cli_world import run

import chatledger
from chatledger import InvalidValueError
from chatledger.domain.limits import MAX_UNPACKED_BYTES
from chatledger.importers import read_chats

MIB = 1024 * 1024


def write_gzip(path: Path, start: bytes, size: int, *, fill: bytes = b" ") -> Path:
    # Files of gzip that follow each other are one; so a large one is made at once.
    path.write_bytes(gzip.compress(start) + gzip.compress(fill * (MIB // len(fill))) * (size // MIB))
    return path


def write_zip(path: Path, size: int, *, members: int = 1) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(members):
            with archive.open(f"conversations-{number:03}.json", "w") as out:
                out.write(b"[")
                for _ in range(size // MIB):
                    out.write(b" " * MIB)
                out.write(b"]")
    return path


BOMBS: dict[str, Callable[[Path, int], Path]] = {
    "one line": lambda folder, size: write_gzip(folder / "x.jsonl.gz", b'{"message_tree_id": "', size),
    "many lines": lambda folder, size: write_gzip(
        folder / "x.jsonl.gz", b'{"message_tree_id": 1}\n', size, fill=b" " * 1023 + b"\n"
    ),
    "chatgpt": lambda folder, size: write_gzip(folder / "x.json.gz", b'[{"mapping": "', size),
    "claude": lambda folder, size: write_gzip(folder / "x.json.gz", b'[{"chat_messages": "', size),
    "messages": lambda folder, size: write_gzip(folder / "x.json.gz", b'[{"role": "user", "content": 1}, "', size),
    "messages by line": lambda folder, size: write_gzip(
        folder / "x.jsonl.gz", b'{"messages": 1}\n', size, fill=b" " * 1023 + b"\n"
    ),
    "sharegpt": lambda folder, size: write_gzip(folder / "x.json.gz", b'[{"conversations": [{"from": "', size),
    "sqlite": lambda folder, size: write_gzip(folder / "x.db.gz", b"SQLite format 3\0", size),
    "zip": lambda folder, size: write_zip(folder / "x.zip", size // 2),
    "zip of many": lambda folder, size: write_zip(folder / "x.zip", size // 8, members=9),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(tmp_path: Path, name: str) -> None:
    """It is as small as a letter, and the error names the limit and how to raise it; a higher limit lets it pass."""
    path = BOMBS[name](tmp_path, 40 * MIB)
    assert path.stat().st_size < 40 * MIB / 200
    with pytest.raises(InvalidValueError, match=r"more than 16,777,216 bytes when it is unpacked.*max_unpacked_bytes"):
        list(read_chats(path, on_problem=lambda _: None, max_unpacked_bytes=16 * MIB))
    with contextlib.suppress(InvalidValueError):  # it is no file of its format, which is known now
        assert list(read_chats(path, on_problem=lambda _: None, max_unpacked_bytes=64 * MIB)) == []


LIMITED = """
import sys
from pathlib import Path
from chatledger import InvalidValueError
from chatledger.importers import read_chats
try:
    list(read_chats(Path(sys.argv[1]), on_problem=lambda _: None, max_unpacked_bytes=8 * 2**20))
except InvalidValueError as error:
    print(error)
# Not ru_maxrss, which begins with what the parent had.
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("name", ["one line", "zip", "sqlite"])
def test_memory_is_bounded_by_the_limit(tmp_path: Path, name: str) -> None:
    """A bomb of a quarter of a gigabyte takes no more memory than the limit lets it, twice at most while it is put together."""
    path = BOMBS[name](tmp_path, 256 * MIB)
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    said, memory_kib = done.stdout.splitlines()
    assert "8,388,608 bytes" in said
    assert int(memory_kib) < 200 * 1024


def test_the_command(tmp_path: Path) -> None:
    """`import` refuses it in one line, and takes the other files in; --max-unpacked raises the limit."""
    bomb = BOMBS["one line"](tmp_path, 4 * MIB)
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("good", "ada")
        exported = ledger.export_chat("good")
    good = tmp_path / "good.jsonl"
    with good.open("wb") as out:
        from chatledger.importers import write_chats

        write_chats(out, [exported])
    result = run("--location", tmp_path / "data", "import", "--max-unpacked", "2", bomb, good)
    assert (result.exit_code, "--max-unpacked" in result.stderr, "1 new" in result.stdout) == (1, True, True)
    assert "Traceback" not in result.stderr
    assert run("--location", tmp_path / "data", "import", "--max-unpacked", "0", good).exit_code == 2


def test_what_is_not_compressed_is_as_large_as_it_is(tmp_path: Path) -> None:
    """The limit is about unpacking; and ordinary files are far below it."""
    path = tmp_path / "x.json"
    path.write_bytes(b"[" + b" " * (2 * MIB) + b"]")
    assert list(read_chats(path, format="chatgpt", on_problem=lambda _: None, max_unpacked_bytes=1024)) == []
    assert MAX_UNPACKED_BYTES == 1024 * MIB
