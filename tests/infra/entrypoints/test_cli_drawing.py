"""The drawing that `show` prints: chains in one column, and names that are never cut."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cli_world import TIMEOUT_S, ask, run
from tests.support.drawing_graphs import TRIP, chain, graph, node

import chatledger
from chatledger import user
from chatledger.domain.draw.escaping import escaped
from chatledger.domain.draw.tree import DrawnLine, draw_flat_lines, draw_lines
from chatledger.infra.entrypoints.cli.drawing import coloured


def test_a_chain_stays_in_its_column() -> None:
    """Only what was tried beside it stands further to the right."""
    assert [str(line) for line in draw_flat_lines(TRIP)] == [
        '● a1f0c2d3 (user): "Plan a weekend in Riga"',
        '├─○ b7e1aa90 (assistant): "Old Town first?"',
        '│ ○ c9d2 (user): "Yes" <- [main] {draft}',
        '● d4e5f6a7 (assistant): "Try the coast" <- [main-v2 *]',
    ]
    assert [line.prefix for line in draw_flat_lines(TRIP, style="ascii")] == ["@ ", "|-o ", "| o ", "@ "]


def test_regenerating_does_not_indent() -> None:
    """Forty turns, of which each answer was repeated, are drawn as wide as the first one."""
    nodes = [node("q0")]
    for turn in range(40):
        nodes += [node(f"old{turn}", f"q{turn}"), node(f"new{turn}", f"q{turn}"), node(f"q{turn + 1}", f"new{turn}")]

    assert {line.prefix for line in draw_flat_lines(graph(*nodes))} == {"○ ", "├─○ "}


@given(st.lists(st.integers(min_value=-1, max_value=20), max_size=20))
def test_both_drawings_have_the_same_messages(parents: list[int]) -> None:
    nodes = [node(f"n{number}", None if parent == -1 else f"n{parent}") for number, parent in enumerate(parents)]
    drawn = graph(*nodes)

    assert [(line.id, line.skipped) for line in draw_flat_lines(drawn)] == [
        (line.id, line.skipped) for line in draw_lines(drawn)
    ]


NAMES = st.text("abc漢字-", min_size=1, max_size=60)


@given(
    width=st.integers(min_value=20, max_value=120),
    depth=st.integers(min_value=0, max_value=40),
    content=st.text("ab 漢é", max_size=50),
    branches=st.lists(st.tuples(NAMES, st.booleans()), max_size=4),
    checkpoints=st.lists(NAMES, max_size=3),
)
def test_names_are_never_cut(
    width: int, depth: int, content: str, branches: list[tuple[str, bool]], checkpoints: list[str]
) -> None:
    """Whatever the width: no line is wider than the terminal, and without line breaks and strokes all names are there."""
    line = DrawnLine(
        prefix="│ " * depth + "● ",
        below="│ " * depth + "  ",
        id="a1f0c2d3",
        role="user",
        content=content,
        branches=tuple(branches),
        checkpoints=tuple(checkpoints),
    )
    found = coloured(line, width=width)
    behind = "".join(text.plain.lstrip("…│ ") for text in found)

    assert max(text.cell_len for text in found) <= width
    for name in [*checkpoints, *(f"{name} *" if is_active else name for name, is_active in branches)]:
        assert name.replace(" ", "") in behind.replace(" ", "")
    assert [text.plain for text in coloured(line, width=None)] == [str(line)]


def test_the_preview_gives_way_first() -> None:
    line = DrawnLine(prefix="● ", id="a1f0c2d3", role="user", content="leeks " * 8, branches=(("main", True),))

    assert [text.plain for text in coloured(line, width=50)] == ['● a1f0c2d3 (user): "leeks leeks leek…" <- [main *]']
    first, second = coloured(line, width=30)
    assert first.plain == '● a1f0c2d3 (user): "leeks le…"'
    assert second.plain == "<- [main *]"


def drawn_at(width: int, *args: str, at: Path) -> list[str]:
    """The lines that a terminal of that width shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "chatledger", "-l", str(at), *args],
        stdout=theirs,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(theirs)
    shown = b""
    with process, os.fdopen(ours, "rb") as screen:
        try:
            while part := screen.read1():
                shown += part
        except OSError:
            pass  # how a terminal ends
        assert process.wait(TIMEOUT_S) == 0
    text = shown.decode()
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[0m", "\x1b[1;2m"):
        text = text.replace(code, "")
    return text.splitlines()


@pytest.mark.matrix
@pytest.mark.parametrize("width", [40, 80])
def test_on_a_terminal(tmp_path: Path, width: int) -> None:
    """Nothing is wider than the terminal, every name is there, and the branches are listed with the active one marked."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("one message that does not fit into a narrow terminal")])
        head = None
        for _ in range(4):
            head = ledger.append("trip", [user("日本語のメッセージ、とても長いので切られます、きっと")])[-1]
            ledger.append("trip", [user("an answer that does not fit either, being long")])
            ledger.fork("trip", head.id)
        assert head is not None
        ledger.set_checkpoint("trip", "a checkpoint with a long name", head.id)
    lines = drawn_at(width, "show", "trip", at=tmp_path / "data")
    branches = ask("branches", "trip", at=tmp_path / "data")
    drawing, _, listed = "\n".join(lines).partition("Branches (5):")

    for branch in branches:
        assert f"{branch['name']}{' *' if branch['is_active'] else ''}]" in drawing
        assert f"{'*' if branch['is_active'] else ' '} {branch['name']} " in listed
    assert "{a checkpoint with a long name}" in drawing
    assert "…" in drawing
    assert not any(line.startswith("    ") for line in drawing.splitlines())


def test_trees_of_several_roots_are_apart(tmp_path: Path) -> None:
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("two", "ada")
        ledger.append("two", [user("first")])
        ledger.create_branch("two", "other", None, activate=True)
        ledger.append("two", [user("second")])
    lines = run("show", "two", at=tmp_path / "data").stdout.splitlines()
    first = next(at for at, line in enumerate(lines) if '"first"' in line)

    assert lines[first + 1] == ""
    assert '"second"' in lines[first + 2]


def test_very_long_chains_are_collapsed() -> None:
    assert [line.skipped for line in draw_flat_lines(graph(*chain(3_000)))] == [0, 0, 0, 2994, 0, 0, 0]


@pytest.mark.parametrize("code", [0x202E, 0x2066, 0x2069, 0x200B, 0xFEFF, 0xAD, 0xE0041])
def test_what_nobody_sees_is_escaped(code: int) -> None:
    assert escaped(f"a{chr(code)}b") == (f"a\\u{code:04x}b" if code < 0x10000 else f"a\\U{code:08x}b")


@pytest.mark.parametrize("text", ["a\u200cb", "a\u200db", "a\u200fb", "\u00e9"])
def test_what_a_script_needs_is_not_escaped(text: str) -> None:
    assert escaped(text) == text


def test_overrides_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """In JSON they are as they were said when a program reads it, and escaped on a terminal."""
    said = "pay \u202e001\u202c now"
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("x", "ada", title=said)
        ledger.append("x", [user(said)])
    for args in (["chats"], ["show", "x"], ["show", "x", "--messages"], ["log"], ["search", "pay"]):
        shown = run(*args, at=tmp_path / "data").stdout
        assert "\\u202e001" in shown
        assert "\u202e" not in shown

    assert ask("chats", at=tmp_path / "data")[0]["title"] == said
    assert "\\u202e" in "".join(drawn_at(400, "chats", "--json", at=tmp_path / "data"))
