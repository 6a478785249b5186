import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli_world import oasst_row, write_lines
from tests.support.imported_files import read

from chatledger.domain.errors import ChainIntegrityError, InvalidValueError

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"
REAL = Path(os.environ.get("CHATLEDGER_OASST") or ROOT.parent / "shared" / "data" / "oasst1-en-validation.jsonl")
DEEP = 20_000


def row(message_id: str, parent_id: str | None = None, *, tree: str = "t", **fields: Any) -> dict[str, Any]:
    return oasst_row(message_id, parent_id, tree=tree, **{"role": "prompter", "user_id": "ada", **fields})


def test_messages_file() -> None:
    """Interleaved trees come out whole, with branches for every leaf and `main` on the best ranked replies."""
    (bread, river), problems = read(DATA / "oasst_messages.jsonl", strict=True)

    assert problems == []
    assert [message.id for message in bread.messages] == ["a1", "a3", "a2", "a5", "a4", "a6"]
    assert [(b.name, b.head_message_id) for b in bread.branches] == [
        ("main", "a5"),
        ("main-v2", "a4"),
        ("main-v3", "a6"),
    ]
    assert [branch.is_active for branch in bread.branches] == [True, False, False]
    assert bread.title == "How do I keep bread fresh for as long as possible, without a"
    assert (bread.id, bread.user_id) == ("a1", "ada")
    assert bread.metadata == {"source": "oasst", "lang": "en"}
    # A rank beats none.
    assert river.branches[0].head_message_id == "b3"


def test_message_fields() -> None:
    (bread, _), _ = read(DATA / "oasst_messages.jsonl")
    by_id = {message.id: message for message in bread.messages}

    assert by_id["a2"].data == {"id": "a2", "role": "assistant", "parts": [{"type": "text", "text": "In a paper bag."}]}
    assert (by_id["a1"].name, by_id["a1"].type, by_id["a1"].sender_id) == ("user", "message", "ada")
    assert (by_id["a2"].name, by_id["a2"].sender_id) == ("assistant", None)
    assert by_id["a1"].created_at == 1_675_790_964_727
    assert by_id["a6"].created_at == 1_675_814_400_000


def test_tree_file_says_the_same() -> None:
    """Both forms of the same conversations have the same messages, links and active head."""
    nested, problems = read(DATA / "oasst_trees.jsonl", strict=True)
    flat, _ = read(DATA / "oasst_messages.jsonl")

    assert problems == []
    for one, other in zip(nested, flat, strict=True):
        assert {m.id: m for m in one.messages} == {m.id: m for m in other.messages}
        assert {b.head_message_id for b in one.branches} == {b.head_message_id for b in other.branches}
        assert (one.id, one.user_id, one.title, one.metadata) == (other.id, other.user_id, other.title, other.metadata)


@pytest.mark.soak
def test_deep_tree_file(tmp_path: Path) -> None:
    """Replies nested deeper than any recursive decoder goes are read, also with odd spacing."""
    node = '{"message_id": "m%d", "role": "prompter", "text": "\\u00e9 [{", "replies" : [ '
    text = "".join(node % n for n in range(DEEP)) + "] }" * DEEP
    chats, problems = read(
        write_lines(tmp_path / "deep.jsonl", '{"message_tree_id": "m0", "rank": [], "x": {}, "prompt": ' + text + " }")
    )

    assert problems == []
    assert [(f"m{n}", f"m{n - 1}" if n else None) for n in range(DEEP)] == [
        (m.id, m.parent_id) for m in chats[0].messages
    ]
    assert f"m{DEEP - 1}" == chats[0].branches[0].head_message_id


@pytest.mark.matrix
@pytest.mark.parametrize("end", ["] ]", "", "] }" * DEEP + "x", "} " * DEEP, ', "a" }', '{"a" 1'])
def test_deep_and_malformed(tmp_path: Path, end: str) -> None:
    text = '{"message_tree_id": "t", "prompt": ' + '{"replies": [' * DEEP + end
    chats, problems = read(write_lines(tmp_path / "deep.jsonl", text, row("a")))

    assert [chat.id for chat in chats] == ["t"]
    assert [problem.line for problem in problems] == [1]


@pytest.mark.parametrize(
    "broken",
    [
        '{"message_id": "x", ',
        "[1]",
        row(""),
        row("x", tree=""),
        row("x", role="critic"),
        row("x", text=None),
        {"message_tree_id": "u", "prompt": 1},
        r'{"message_id": "\x"}',
    ],
)
def test_a_broken_record_is_reported_and_skipped(tmp_path: Path, broken: Any) -> None:
    """The line is named; the rest is read; strictly it is an error that names file and line."""
    path = write_lines(tmp_path / "some.jsonl", row("a"), broken, row("b", "a"))
    chats, problems = read(path)

    assert [message.id for message in chats[0].messages] == ["a", "b"]
    assert [(str(path), 2)] == [(problem.source, problem.line) for problem in problems]
    with pytest.raises(InvalidValueError, match=r"some\.jsonl, line 2: "):
        read(path, strict=True)


def test_a_broken_time_costs_only_the_time(tmp_path: Path) -> None:
    (chat,), problems = read(write_lines(tmp_path / "some.jsonl", row("a", created_date="yesterday")))

    assert chat.messages[0].created_at is None
    assert [str(problem).split(": ")[0].split(", ")[1] for problem in problems] == ["line 1"]


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(row("a")).encode() + b'\r\n{"message_id": "\xff"}\r\n\r\n')
    chats, problems = read(path)

    assert [message.id for message in chats[0].messages] == ["a"]
    assert [problem.message for problem in problems] == ["not valid JSON: not UTF-8; skipped"]


def test_half_an_emoji_is_replaced(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "some.jsonl", json.dumps(row("a", text="cut \ud83d")))
    (chat,), problems = read(path)

    assert chat.messages[0].data["parts"][0]["text"] == "cut \ufffd"
    assert [problem.message for problem in problems] == ["lone surrogates replaced by U+FFFD"]


@pytest.mark.parametrize(
    ("rows", "roots"),
    [
        ([row("a", "gone"), row("b", "a")], ["a"]),
        ([row("a", "b"), row("b", "a"), row("c", "b")], ["a"]),
        ([row("a", "a")], ["a"]),
        ([row("a", tree="other"), row("b", "a")], ["a", "b"]),
    ],
)
def test_broken_links(tmp_path: Path, rows: list[Any], roots: list[str]) -> None:
    """A missing parent and a cycle make a root and a report; strictly they are refused."""
    path = write_lines(tmp_path / "some.jsonl", *rows)
    chats, problems = read(path)

    assert roots == [message.id for chat in chats for message in chat.messages if message.parent_id is None]
    assert len(rows) == sum(len(chat.messages) for chat in chats)
    assert len(problems) == 1
    with pytest.raises(ChainIntegrityError, match=r"some\.jsonl, line \d: "):
        read(path, strict=True)


def test_repeated_messages(tmp_path: Path) -> None:
    """The same again is ignored, other content reported: the first one counts. Another tree may have the id too."""
    again = row("a", text="changed")
    path = write_lines(
        tmp_path / "some.jsonl", row("a"), row("a"), again, row("a", tree="other"), row("b", tree="other")
    )
    chats, problems = read(path)

    assert [m.data["parts"][0]["text"] for chat in chats for m in chat.messages] == [
        "text of a",
        "text of a",
        "text of b",
    ]
    assert [problem.line for problem in problems] == [3]


def test_a_damaged_gzip_gives_what_is_readable(tmp_path: Path) -> None:
    whole = gzip.compress((DATA / "oasst_trees.jsonl").read_bytes() * 200)
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[:-20])
    chats, problems = read(path)

    assert [chat.id for chat in chats] == ["a1", "b1"]
    assert "cannot be read on" in problems[-1].message
    with pytest.raises(InvalidValueError, match="cannot be read on"):
        read(path, strict=True)


@pytest.mark.skipif(
    not REAL.exists(), reason=f"no OASST1 file: set CHATLEDGER_OASST (tried {REAL.name} in shared/data)"
)
def test_real_conversations_agree_with_a_plain_walk() -> None:
    """Every parent link, fork and leaf of the OASST1 sample is as a walk over its lines finds it."""
    rows = [json.loads(line) for line in REAL.read_text(encoding="utf-8").splitlines()]
    chats, problems = read(REAL)

    known = {each["message_id"] for each in rows}
    orphans = {each["message_id"] for each in rows if each["parent_id"] and each["parent_id"] not in known}
    links = {each["message_id"]: None if each["message_id"] in orphans else each["parent_id"] for each in rows}
    messages = {message.id: message for chat in chats for message in chat.messages}
    assert (len(messages), len(chats), len(orphans)) == (2022, 191, 3)
    assert links == {key: message.parent_id for key, message in messages.items()}
    assert {each["message_id"]: each["message_tree_id"] for each in rows} == {
        m.id: c.id for c in chats for m in c.messages
    }
    assert {each["message_id"]: each["text"] for each in rows} == {
        key: message.data["parts"][0]["text"] for key, message in messages.items()
    }

    forks = Counter(parent for parent in links.values() if parent)
    assert sum(count > 1 for count in forks.values()) == 454
    heads = [branch.head_message_id for chat in chats for branch in chat.branches]
    assert len(heads) == 1005
    assert set(links) - set(forks) == set(heads)
    assert len(orphans) == len(problems)
    with pytest.raises(ChainIntegrityError):
        read(REAL, strict=True)


@pytest.mark.skipif(
    not REAL.exists(), reason=f"no OASST1 file: set CHATLEDGER_OASST (tried {REAL.name} in shared/data)"
)
def test_real_main_branches_follow_the_ranks() -> None:
    """No sibling of a message on `main` has a better rank, and of equals the earlier one is taken."""
    rows = [json.loads(line) for line in REAL.read_text(encoding="utf-8").splitlines()]
    order = {each["message_id"]: (each["rank"] is None, each["rank"] or 0, n) for n, each in enumerate(rows)}
    for chat in read(REAL)[0]:
        parents = {message.id: message.parent_id for message in chat.messages}
        at = chat.branches[0].head_message_id
        while at is not None and parents[at] is not None:
            siblings = [key for key, parent in parents.items() if parent == parents[at]]
            assert at == min(siblings, key=order.__getitem__)
            at = parents[at]
        assert at == chat.messages[0].id
