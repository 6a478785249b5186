"""`chats` and `show`."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.cli_world import ask, fails, finish, run, start

import chatledger
from chatledger import Graph, NewMessage, user
from chatledger.domain.draw.tree import Style, draw_flat_lines
from chatledger.drawing import draw_dot, draw_mermaid

STYLES: tuple[Style, Style] = "unicode", "ascii"


def test_chats_as_a_table(samples: Path) -> None:
    lines = run("chats", at=samples).stdout.splitlines()

    assert lines[0].split() == ["chat", "messages", "branches", "changed", "(UTC)", "owner", "title"]
    riga = next(line for line in lines if line.startswith("riga "))
    assert riga.split()[:3] == ["riga", "9", "3"]
    assert riga.endswith("  ada    A weekend in Riga")


def test_chats_as_json(samples: Path) -> None:
    with chatledger.open(samples) as ledger:
        expected = ledger.list_chats()
    found = ask("chats", at=samples)

    assert [chat["id"] for chat in found] == [chat.id for chat in expected]
    assert found[0] == expected[0].to_dict(times="iso")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--user", "ada"), {"riga", "sensor"}),
        (("--user", "nobody"), set[str]()),
        (("--user", ""), set[str]()),
        (("--meta", "lang=de"), {"sauerteig"}),
        (("--meta", "stars=5"), {"sensor"}),
        (("--meta", 'stars="5"'), set[str]()),
        (("--meta", "stars=true"), set[str]()),
        (("--user", "ada", "--meta", "topic=travel"), {"riga"}),
        (("--limit", "0"), set[str]()),
    ],
)
def test_chats_filters(samples: Path, arguments: tuple[str, ...], expected: set[str]) -> None:
    assert {chat["id"] for chat in ask("chats", *arguments, at=samples)} == expected


@pytest.mark.soak
def test_chats_pages(samples: Path) -> None:
    whole = [chat["id"] for chat in ask("chats", at=samples)]
    paged: list[str] = []
    while page := [
        chat["id"] for chat in ask("chats", "-n", "2", *(["--after", paged[-1]] if paged else []), at=samples)
    ]:
        paged += page

    assert whole == paged
    assert run("chats", "-n", "2", at=samples).stdout.splitlines()[-1] == f"More with --after {whole[1]}"
    assert "More" not in run("chats", "-n", "5", at=samples).stdout
    assert fails(1, "chats", "--after", "rigga", at=samples) == "no chat 'rigga'; did you mean 'riga'?"


@pytest.mark.soak
def test_no_chats(tmp_path: Path, samples: Path) -> None:
    with chatledger.open(tmp_path / "empty"):
        pass

    assert run("chats", at=tmp_path / "empty").stdout.startswith("No chats yet")
    assert ask("chats", at=tmp_path / "empty") == []
    assert run("chats", "--user", "nobody", at=samples).stdout == "No chat matches.\n"
    assert "the ledger is empty" in fails(1, "show", "riga", at=tmp_path / "empty")


def test_show_draws_the_dag(samples: Path) -> None:
    with chatledger.open(samples) as ledger:
        graph = ledger.graph("riga")
    drawn, ascii_drawn = ("".join(f"{line}\n" for line in draw_flat_lines(graph, style=style)) for style in STYLES)
    result = run("show", "riga", at=samples)

    assert result.exit_code == 0
    assert result.stdout.startswith("A weekend in Riga\nowner ada · 9 messages · 3 branches · created 2026-03-02T18:04")
    assert f"\n\n[chat: riga]\n\n{drawn}\nLegend: " in result.stdout
    listed = result.stdout.partition("\n\nBranches (3):\n")[2]
    assert set(listed.splitlines()) == {"  main     riga-4", "  main-v2  riga-9", "* inland   riga-8"}
    assert f"\n{ascii_drawn}\nLegend: " in run("show", "riga", "--graph", "--ascii", at=samples).stdout


def test_show_draws_for_other_programs(samples: Path) -> None:
    """Mermaid and DOT text alone, so that it can be piped; the tree is the default."""
    with chatledger.open(samples) as ledger:
        graph = ledger.graph("riga")

    assert run("show", "riga", "--format", "mermaid", at=samples).stdout == draw_mermaid(graph) + "\n"
    assert run("show", "riga", "--graph", "--format", "dot", at=samples).stdout == draw_dot(graph) + "\n"
    assert run("show", "riga", "--format", "tree", at=samples).stdout == run("show", "riga", at=samples).stdout


def test_show_the_graph_as_json(samples: Path) -> None:
    """What `Ledger.graph` answers, so that other programs can draw it; `--json` prints the chat with its messages."""
    with chatledger.open(samples) as ledger:
        graph = ledger.graph("riga")
    result = run("show", "riga", "--format", "json", at=samples)

    assert result.stdout.count("\n") == 1
    assert msgspec.json.decode(result.stdout, type=Graph) == graph
    assert ask("show", "riga", "--graph", at=samples) == ask("show", "riga", at=samples)
    assert ask("show", "riga", at=samples).keys() == {"chat", "messages", "branches", "checkpoints"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--format", "svg"], "'svg' is not one of"),
        (["--format"], "requires an argument; see 'chatledger show --help'"),
        (["--format", "mermaid", "--messages"], "--format mermaid shows all branches and --messages shows one"),
        (["--format", "tree", "--branch", "main"], "--format tree shows all branches and --branch shows one"),
        (["--graph", "--messages"], "--graph shows all branches and --messages shows one"),
        (["--graph", "--branch", "main"], "--graph shows all branches and --branch shows one"),
        (["--format", "dot", "--json"], "leave out --json or --format dot"),
        (["--format", "json", "--json"], "leave out --json or --format json"),
        (["--format", "mermaid", "--limit", "3"], "leave it out with --format mermaid"),
        (["--format", "json", "-n", "3"], "leave it out with --format json"),
        (["--format", "dot", "--ascii"], "--ascii is for the tree; leave it out with --format dot"),
        (["--messages", "--ascii"], "--ascii is for the tree; leave it out with --messages"),
        (["--branch", "main", "--ascii"], "--ascii is for the tree; leave it out with --branch"),
        (["--json", "--ascii"], "--ascii is for the tree; leave it out with --json"),
    ],
    ids=" ".join,
)
def test_show_refuses_what_does_not_go_together(tmp_path: Path, options: list[str], reason: str) -> None:
    """One line, exit code 2, before anything is opened."""
    assert reason in fails(2, "show", "riga", *options, at=tmp_path / "none")


@pytest.mark.soak
@pytest.mark.parametrize("form", ["mermaid", "dot", "json"])
def test_drawings_are_never_coloured(samples: Path, form: str) -> None:
    """They are for programs, also where colours are forced."""
    code, out, err = finish(start("-l", str(samples), "show", "riga", "--format", form, FORCE_COLOR="1", TERM="xterm"))

    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out == run("show", "riga", "--format", form, at=samples).stdout


@pytest.mark.soak
def test_show_draws_big_chats_small(tmp_path: Path) -> None:
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("long", "ada")
        ledger.append("long", [user(f"message {number}") for number in range(3_000)])
    lines = run("show", "long", at=tmp_path / "data").stdout.splitlines()

    assert len(lines) < 20
    assert any(line.strip().endswith("... 2994 messages ...") for line in lines)
    for form in ("mermaid", "dot"):
        drawn = run("show", "long", "--format", form, at=tmp_path / "data").stdout
        assert "... 2994 messages ..." in drawn
        assert len(drawn) < 3_000


def test_show_an_empty_chat(tmp_path: Path) -> None:
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("empty", "")

    assert run("show", "empty", at=tmp_path / "data").stdout.endswith("[chat: empty]\n\n(empty)\n")
    assert "(empty)" in run("show", "empty", "--format", "mermaid", at=tmp_path / "data").stdout
    assert "(empty)" in run("show", "empty", "--format", "dot", at=tmp_path / "data").stdout
    assert run("show", "empty", "--messages", at=tmp_path / "data").exit_code == 0
    assert ask("show", "empty", "--messages", at=tmp_path / "data")["messages"] == []


def test_show_limits_the_lines_of_the_tree(samples: Path) -> None:
    lines = run("show", "riga", "-n", "2", at=samples).stdout.splitlines()

    assert "... 7 more lines, --limit cut them" in lines
    assert sum("riga-" in line and "(" in line for line in lines) == 2


def test_show_reads_a_branch(samples: Path) -> None:
    result = run("show", "riga", "--branch", "main", at=samples)
    active = run("show", "riga", "--messages", at=samples)

    assert result.stdout.splitlines()[:2] == [
        "A weekend in Riga",
        "chat riga · owner ada · 9 messages · 3 branches · 2 checkpoints",
    ]
    assert "\nbranch main, 4 messages\n" in result.stdout
    assert "\n\nuser ada  2026-03-02T18:05:35.000Z  riga-1\n  Plan me a weekend" in result.stdout
    assert "riga-2  {first-plan}\n" in result.stdout
    assert "\nbranch inland *, 6 messages\n" in active.stdout
    assert active.stdout.endswith("a ticket is under 4 €.\n")


@pytest.mark.parametrize("chat_id", ["riga", "sensor", "tortilla"])
def test_the_newest_messages_are_the_end_of_the_chain(chat_id: str, samples: Path) -> None:
    """With their parents, also where the first of them answers one that is not shown."""
    whole = ask("show", chat_id, "--messages", at=samples)["messages"]
    told = run("show", chat_id, "--messages", "--limit", "2", at=samples).stdout

    assert ask("show", chat_id, "--messages", "-n", "2", at=samples)["messages"] == whole[-2:]
    assert f", {len(whole)} messages, the last 2 of them" in told
    assert whole[-2]["id"] in told
    assert whole[-3]["id"] not in told


def test_show_an_unknown_branch(samples: Path) -> None:
    assert (
        fails(1, "show", "riga", "--branch", "inlnd", at=samples)
        == "chat 'riga' has no branch 'inlnd'; it has 'inland' and 2 more"
    )
    assert "branch" in fails(1, "show", "riga", "--branch", "x" * 3000, at=samples)


def test_show_as_json(samples: Path) -> None:
    found = ask("show", "riga", at=samples)
    chain = ask("show", "riga", "--branch", "main", at=samples)

    assert found["chat"]["id"] == chain["chat"]["id"] == "riga"
    assert {m["id"]: m["parent_id"] for m in found["messages"]}["riga-5"] == "riga-2"
    assert {b["name"]: (b["head_message_id"], b["is_active"], b["message_count"]) for b in found["branches"]} == {
        "main": ("riga-4", False, 4),
        "main-v2": ("riga-9", False, 4),
        "inland": ("riga-8", True, 6),
    }
    assert {c["name"]: c["message_id"] for c in found["checkpoints"]} == {"first-plan": "riga-2", "sigulda": "riga-6"}
    assert [m["id"] for m in chain["messages"]] == ["riga-1", "riga-2", "riga-3", "riga-4"]
    assert chain["messages"] == [m for m in found["messages"] if m["id"] in {f"riga-{n}" for n in (1, 2, 3, 4)}]
    assert chain["branch"]["name"] == "main"
    assert len(ask("show", "riga", "-n", "3", at=samples)["messages"]) == 3


@pytest.mark.soak
def test_content_does_not_drive_the_terminal(tmp_path: Path) -> None:
    """Neither escape sequences nor markup of the printing library; line breaks of a message stay."""
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("x", "\x1b[2Jada", title="[bold]title\x1b]0;owned\x07\nsecond")
        ledger.append("x", [NewMessage("us\x1ber", "one\x1b[31m\r\ntwo\t[red]three[/red] :smile:", sender_id="a\x1bb")])
    output = "".join(
        run(*arguments, at=tmp_path / "data").stdout
        for arguments in (
            ("chats",),
            ("show", "x"),
            ("show", "x", "--messages"),
            ("show", "x", "--format", "mermaid"),
            ("show", "x", "--format", "dot"),
            ("log",),
            ("replay", "x"),
        )
    )

    assert "\x1b" not in output
    assert "\x07" not in output
    assert "\n  one [31m\n  two " in output
    assert "[red]three[/red] :smile:" in output
    assert "[bold]title" in output


def test_messages_of_any_json_value(tmp_path: Path) -> None:
    values: list[Any] = [None, 1, [], {}, {"a": ["b", {"c": "d"}]}, ""]
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("x", "ada")
        ledger.append("x", [NewMessage("tool", value) for value in values])

    assert run("show", "x", "--messages", at=tmp_path / "data").stdout.count("(no text)") == 5
    assert [message["data"] for message in ask("show", "x", at=tmp_path / "data")["messages"]] == values
