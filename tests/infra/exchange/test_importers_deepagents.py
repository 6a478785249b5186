import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.deepagents_files import BRANCHES, CHAT, CHECKPOINTS, MESSAGES, make_file
from tests.support.imported_files import read

from chatledger.domain.errors import ChainIntegrityError, InvalidValueError


def test_everything_is_carried_over(tmp_path: Path) -> None:
    (chat,), problems = read(make_file(tmp_path / "context.db"), strict=True)

    assert problems == []
    assert (chat.id, chat.user_id, chat.title) == ("c1", "ada", "Bread")
    assert json.dumps(chat.metadata) == '{"b": 1, "a": [true, null]}'
    assert (chat.created_at, chat.updated_at) == (1_700_000_000_000, 1_700_000_009_000)
    assert [(row[0], row[2], row[3], row[4], json.loads(row[5]), row[6]) for row in MESSAGES] == [
        (m.id, m.parent_id, m.name, m.type, m.data, m.created_at) for m in chat.messages
    ]
    assert [(row[0], *row[2:4], bool(row[4]), row[5]) for row in BRANCHES] == [
        (b.id, b.name, b.head_message_id, b.is_active, b.created_at) for b in chat.branches
    ]
    assert [(row[0], *row[2:]) for row in CHECKPOINTS] == [
        (k.id, k.name, k.message_id, k.created_at) for k in chat.checkpoints
    ]


def test_gzip_makes_no_difference(tmp_path: Path) -> None:
    plain = make_file(tmp_path / "context.db")
    packed = tmp_path / "context.db.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    assert read(plain) == read(packed)


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_reading_leaves_no_trace(tmp_path: Path, journal: str) -> None:
    """Neither the file nor its directory changes, also in WAL mode, and names with odd characters work."""
    path = make_file(tmp_path / "con?text #1%20.db", journal=journal)
    before = path.read_bytes()
    path.chmod(0o400)
    chats, _ = read(path)

    assert len(chats) == 1
    assert (before, [path]) == (path.read_bytes(), list(tmp_path.iterdir()))


def test_what_is_only_in_the_wal_is_read(tmp_path: Path) -> None:
    """A file that a running program holds open is read in its latest state."""
    path = make_file(tmp_path / "context.db", journal="WAL")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("INSERT INTO messages VALUES ('m4', 'c1', 'm3', 'user', 'message', '4', 1)")
        writer.commit()

        assert [message.id for message in read(path)[0][0].messages] == ["m1", "m2", "m3", "m4"]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"messages": [*MESSAGES, ("m4", "c1", "gone", "user", None, "1", 1)]}, 4),
        (
            {
                "messages": [
                    *MESSAGES,
                    ("m4", "c1", "m5", "user", None, "1", 1),
                    ("m5", "c1", "m4", "user", None, "1", 1),
                ]
            },
            5,
        ),
        ({"branches": [*BRANCHES, ("b4", "c1", "lost", "gone", 0, 1)]}, 3),
        ({"checkpoints": [("k2", "c1", "lost", "gone", 1)]}, 3),
        ({"messages": [*MESSAGES, ("m4", "no chat", None, "user", None, "1", 1)]}, 3),
    ],
)
def test_broken_links(tmp_path: Path, changes: dict[str, Any], count: int) -> None:
    """What points nowhere is reported; strictly it is refused."""
    path = make_file(tmp_path / "context.db", **changes)
    (chat,), problems = read(path)

    assert (count, 1) == (len(chat.messages), len(problems))
    assert [branch.name for branch in chat.branches] == ["main", "main-v2", "empty"]
    with pytest.raises(ChainIntegrityError, match=r"context\.db: "):
        read(path, strict=True)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("m4", "c1", "m2", "user", None, "{", 1), "not valid JSON"),
        (("m4", "c1", "m2", "user", None, "[" * 100_000, 1), "nested too deeply"),
        (("m4", "c1", "m2", "", None, "1", 1), "its name must not be empty"),
        (("", "c1", "m2", "user", None, "1", 1), "its id must not be empty"),
        ((b"m4", "c1", "m2", "user", None, "1", 1), "its id is not a text"),
    ],
)
def test_a_broken_row_is_skipped(tmp_path: Path, row: Any, reason: str) -> None:
    path = make_file(tmp_path / "context.db", messages=[*MESSAGES, row])
    (chat,), problems = read(path)

    assert (len(chat.messages), len(problems)) == (3, 1)
    assert reason in problems[0].message
    with pytest.raises(InvalidValueError, match=reason):
        read(path, strict=True)


def test_damaged_text_is_skipped_and_half_an_emoji_replaced(tmp_path: Path) -> None:
    path = make_file(tmp_path / "context.db", messages=[*MESSAGES, ("m4", "c1", "m2", "user", None, '"\\ud83d"', 1)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE messages SET data = CAST(x'22ff22' AS TEXT) WHERE id = 'm3'")
        database.commit()
    (chat,), problems = read(path)

    assert [message.data if isinstance(message.data, str) else "hi" for message in chat.messages] == [
        "hi",
        "plain",
        "\ufffd",
    ]
    words = ["not UTF-8", "surrogates", "head 'm3' of branch 'main-v2' of chat 'c1' was skipped; it ends at 'm1'"]
    assert all(word in problem.message for problem, word in zip(problems, words, strict=True))
    assert [("main-v2", "m1")] == [(one.name, one.head_message_id) for one in chat.branches if one.is_active]


@pytest.mark.parametrize(
    ("branches", "active"),
    [
        ([(*row[:4], 0, row[5]) for row in BRANCHES], "main"),
        ([(*row[:4], 1, row[5]) for row in BRANCHES[1:]], "main-v2"),
        ([(*row[:4], 0, row[5]) for row in BRANCHES[1:]], "main-v2"),
        ([], "main"),
    ],
)
def test_one_branch_is_active(tmp_path: Path, branches: list[Any], active: str) -> None:
    """The source can leave none or several active (it writes them one by one)."""
    (chat,), problems = read(make_file(tmp_path / "context.db", branches=branches))

    assert [active] == [branch.name for branch in chat.branches if branch.is_active]
    assert len(problems) == 1


def test_broken_metadata_is_dropped(tmp_path: Path) -> None:
    chats = [(chat_id, *CHAT[1:3], text, *CHAT[4:]) for chat_id, text in (("c1", "{"), ("c2", "[]"))]
    (first, second), problems = read(make_file(tmp_path / "context.db", chats=chats))

    assert (first.metadata, second.metadata) == (None, None)
    starts = ["metadata of chat 'c1'", "metadata of chat 'c2'", "chat 'c2' has no"]
    assert all(problem.message.startswith(start) for problem, start in zip(problems, starts, strict=True))


def test_other_databases_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE chats (id TEXT)")
    broken = tmp_path / "broken.db"
    broken.write_bytes(make_file(tmp_path / "context.db").read_bytes()[:5000])

    with pytest.raises(InvalidValueError, match="table chats lacks userId"):
        read(other)
    with pytest.raises(InvalidValueError, match="cannot be read as a SQLite file"):
        read(broken)


def test_reading_many_chats_takes_time_in_proportion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the chats take about four times the steps of SQLite, though the file has no index for the messages of a chat."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = _connect(*args, **options)
        connection.set_progress_handler(step, 10)
        return connection

    def steps_of(count: int) -> int:
        nonlocal steps
        steps = 0
        path = make_file(
            tmp_path / f"{count}.db",
            chats=[(f"c{at}", "ada", None, None, 1, 1) for at in range(count)],
            messages=[(f"m{at}", f"c{at}", None, "user", None, "1", 1) for at in range(count)],
            branches=[(f"b{at}", f"c{at}", "main", f"m{at}", 1, 1) for at in range(count)],
            checkpoints=[],
        )
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", connect)
            chats, problems = read(path)

        assert (count, []) == (len(chats), problems)
        return steps

    _connect = sqlite3.connect
    first = steps_of(100)

    assert first > 0
    assert steps_of(400) <= 5 * first
