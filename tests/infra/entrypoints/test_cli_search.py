"""`search`, and `rebuild --only search`."""

import json
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.support.cli_world import ask, fails, finish, run, start

import chatledger
from chatledger import InvalidValueError, Ledger, Message, NewMessage

DAY_MS: Final = 86_400_000


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Two chats of two owners, with a branch, and hostile texts."""
    location = tmp_path / "data"
    with chatledger.open(location) as ledger:
        ledger.create_chat("trip", "ada")
        ledger.create_chat("odd", "bob")
        ledger.add_messages(
            "trip",
            [
                _note("t1", "user", "A fox in the garden", day=0),
                _note("t2", "assistant", "Foxes are shy", day=1, parent_id="t1"),
            ],
        )
        ledger.create_branch("trip", "early", "t1")
        ledger.move_head("trip", "main", "t2", expected=chatledger.ANY)
        ledger.append(
            "odd",
            [
                _note("o1", "tool", "badger\x1b[2J\x9b1m\a\r\n\tis\u2028here", day=2),
                _note("o2", "tool", "the <mark>hedgehog</mark> tag", day=3),
                _note("o3", "we\x1b[2Jird\nrole", "weasel", day=4),
            ],
        )
    return location


def _note(message_id: str, name: str, content: str, *, day: int, parent_id: str | None = None) -> NewMessage:
    return NewMessage(name, content, id=message_id, parent_id=parent_id, created_at=day * DAY_MS)


def found(location: Path, *arguments: str) -> list[str]:
    """The ids of what a search finds."""
    return [hit["message"]["id"] for hit in ask("search", *arguments, at=location)]


def test_hits_as_text(notes: Path) -> None:
    """Who, when, which message and where; below it the snippet, without marks where there are no colours; long ids are cut."""
    result = run("search", "foxes", at=notes)

    assert result.exit_code == 0
    assert not result.stderr
    assert result.stdout.splitlines() == [
        "assistant  1970-01-02T00:00:00.000Z  t2  [trip]",
        "  Foxes are shy",
        "user  1970-01-01T00:00:00.000Z  t1  [trip]",
        "  A fox in the garden",
    ]
    assert "[trip]" not in run("search", "foxes", "--chat", "trip", at=notes).stdout
    with chatledger.open(notes) as ledger:
        (message,) = ledger.append("trip", [chatledger.user("an okapi")])
    assert run("search", "okapi", at=notes).stdout.splitlines()[0].split()[2:] == [message.id[:8], "[trip]"]


def test_hits_as_json(samples: Path) -> None:
    """What `Ledger.search` answers, one hit a line."""
    with chatledger.open(samples) as ledger:
        expected = ledger.search("the OR bread", limit=4)
    result = run("search", "the OR bread", "-n", "4", "--json", at=samples)

    assert json.loads(result.stdout) == [hit.to_dict(times="iso") for hit in expected]
    assert len(expected) == 4
    assert len(result.stdout.splitlines()) == 4 + 2
    assert set(ask("search", "bread", at=samples)[0]["message"]) == {*Message.__struct_fields__, *Message.derived}
    hit = ask("search", "bread", at=samples)[0]
    assert [hit["snippet"][start:end] for start, end in hit["matches"]][:1] == ["bread"]


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("fox",), {"t1", "t2"}),
        (("fox", "garden"), {"t1"}),
        (("fox", "NOT", "garden"), {"t2"}),
        (("fox NOT garden",), {"t2"}),
        (('"shy fox"',), set[str]()),
        (("hedge*", "OR", "weasel"), {"o2", "o3"}),
        (("fox", "--chat", "trip"), {"t1", "t2"}),
        (("fox", "--chat", "odd"), set[str]()),
        (("fox", "--chat", "trip", "--branch", "early"), {"t1"}),
        (("fox", "--user", "ada"), {"t1", "t2"}),
        (("fox", "--user", "bob"), set[str]()),
        (("fox", "--chat", "trip", "--user", "bob"), set[str]()),
        (("fox", "--role", "user"), {"t1"}),
        (("fox", "--role", "user", "--role", "assistant"), {"t1", "t2"}),
        (("fox", "--role", "nobody"), set[str]()),
        (("fox", "--since", "1970-01-02"), {"t2"}),
        (("fox", "--until", "1970-01-02"), {"t1"}),
        (("fox", "--since", "1970-01-02T01:00:00+01:00"), {"t2"}),
        (("fox", "--since", "1970-01-02T00:00:00.001"), set[str]()),
        (("fox", "-n", "0"), set[str]()),
        (("--json", "--", "-fox"), {"t1", "t2"}),
        (("--json", "--chat", "trip", "--", "--chat", "fox"), set[str]()),
    ],
)
def test_what_is_found(notes: Path, arguments: tuple[str, ...], expected: set[str]) -> None:
    result = run("search", *arguments, *([] if "--json" in arguments else ["--json"]), at=notes)

    assert result.exit_code == 0, result.stderr
    assert {hit["message"]["id"] for hit in json.loads(result.stdout)} == expected


def test_hidden_messages(notes: Path) -> None:
    with chatledger.open(notes) as ledger:
        ledger.annotate("trip", "t1", hidden=True)

    assert ["t2"] == found(notes, "fox")
    assert {"t1", "t2"} == set(found(notes, "fox", "--include-hidden"))


@pytest.mark.soak
def test_pages(samples: Path) -> None:
    whole = found(samples, "the", "-n", "1000")
    paged: list[str] = []
    while page := found(samples, "the", "-n", "2", "--offset", str(len(paged))):
        paged += page

    assert len(whole) > 4
    assert paged == whole
    assert run("search", "the", "-n", "2", at=samples).stdout.splitlines()[-1] == "More with --offset 2"
    assert (
        run("search", "the", "-n", "2", "--offset", "2", at=samples).stdout.splitlines()[-1] == "More with --offset 4"
    )
    assert "More" not in run("search", "the", "-n", str(len(whole)), at=samples).stdout
    assert run("search", "the", "--offset", "1000", at=samples).stdout == "No more messages match.\n"
    assert run("search", "the", "-n", "0", at=samples).exit_code == 0


def test_twenty_by_default(tmp_path: Path) -> None:
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [NewMessage("user", "marten") for _ in range(25)])

    assert len(found(tmp_path / "data", "marten")) == 20
    assert len(found(tmp_path / "data", "marten", "-n", "30")) == 25
    assert len(found(tmp_path / "data", "marten", "-n", str(sys.maxsize))) == 25
    assert run("search", "marten", at=tmp_path / "data").stdout.splitlines()[-1] == "More with --offset 20"


@pytest.mark.matrix
@pytest.mark.parametrize("query", ["", " ", "!?", '"', "(", "*"])
def test_a_query_without_a_word(notes: Path, query: str) -> None:
    result = run("search", query, at=notes)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "No message matches: there is no letter or digit in the query.\n"
    assert ask("search", query, at=notes) == []


@pytest.mark.matrix
@pytest.mark.parametrize("query", ["unheard", "NOT", "a:b AND (", "x" * 2000, "\udcff z", "zebra\x00\x1b[2J"])
def test_nothing_is_found(notes: Path, query: str) -> None:
    """Whatever the query is: it is said, it is no error, and the query is not repeated to the terminal."""
    result = run("search", query, at=notes)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "No message matches.\n"
    assert ask("search", query, at=notes) == []


def test_messages_do_not_drive_the_terminal(notes: Path) -> None:
    """Control characters and line breaks of texts and roles are blanks, tags of a text stay; in JSON they are what they were."""
    badger = run("search", "badger", at=notes).stdout
    weasel = run("search", "weasel", at=notes).stdout

    assert badger == "tool  1970-01-03T00:00:00.000Z  o1  [odd]\n  badger [2J 1m is here\n"
    assert weasel == "we [2Jird role  1970-01-05T00:00:00.000Z  o3  [odd]\n  weasel\n"
    assert "  the <mark>hedgehog</mark> tag\n" in run("search", "hedgehog", at=notes).stdout
    (hit,) = ask("search", "badger", at=notes)
    assert (hit["snippet"], hit["matches"]) == ("badger\x1b[2J\x9b1m\a\r\n\tis\u2028here", [[0, 6]])


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "Missing argument 'QUERY...'"),
        (("--chat", "trip"), "Missing argument 'QUERY...'"),
        (("fox", "--branch", "main"), "--branch is one of a chat; give --chat too"),
        (("fox", "--user", "ada", "--branch", "main"), "--branch is one of a chat; give --chat too"),
        (("fox", "--limit", "-1"), "-1 is not in the range"),
        (("fox", "--offset", "-1"), "-1 is not in the range"),
        (("fox", "--since", "someday"), "'someday' is not a time, e.g. 2026-02-07"),
        (("fox", "--until", ""), "'' is not a time"),
        (("-fox",), "No such option"),
    ],
)
def test_wrong_usage(notes: Path, arguments: tuple[str, ...], reason: str) -> None:
    error = fails(2, "search", *arguments, at=notes)

    assert reason in error
    assert error.endswith("see 'chatledger search --help'")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--chat", "tri"), "no chat 'tri'; did you mean 'trip'?"),
        (("--chat", "tri", "--json"), "no chat 'tri'; did you mean 'trip'?"),
        (("--chat", "x" * 3000), "no chat 'xxx"),
        (("--chat", "trip", "--branch", "erly"), "chat 'trip' has no branch 'erly'; it has 'early'"),
    ],
)
def test_impossible_names(notes: Path, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fails(1, "search", "fox", *arguments, at=notes)


@pytest.mark.soak
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_matches_are_coloured_on_a_terminal(notes: Path) -> None:
    """Where colours can be shown there are no marks, and nothing from a message but text."""
    code, out, err = finish(
        start("-l", notes, "search", "fox OR badger OR hedgehog", FORCE_COLOR="1", COLUMNS="100", TERM="xterm")
    )

    assert (code, err) == (0, "")
    coloured = re.findall(r"\x1b\[1;31m(.*?)\x1b\[0m", out)
    assert coloured == ["hedgehog", "badger", "Foxes", "fox"]
    assert out.count("mark>") == 2
    assert "\x1b[2J" not in out
    assert "\x9b" not in out


class _InterruptedError(Exception):
    """Raised in the middle of a rebuild."""


def _interrupt(done: int, total: int) -> None:
    del done, total
    raise _InterruptedError


@contextmanager
def degraded(location: Path) -> Generator[Ledger]:
    """A ledger whose search index is being built; commands of this process share it."""
    with chatledger.open(location) as ledger:
        with pytest.raises(_InterruptedError):
            ledger.rebuild(only="search", progress=_interrupt)
        yield ledger


def test_degraded_search_says_so(notes: Path) -> None:
    """On stderr, also beside JSON. What contains the query is found all the same; opening completes the index."""
    with degraded(notes):
        told = run("search", "FOX", at=notes)
        missed = run("search", "fox garden", at=notes)
        as_json = run("search", "hedgehog", "--json", at=notes)
    later = run("search", "fox", "garden", at=notes)

    assert told.exit_code == missed.exit_code == as_json.exit_code == 0
    note = "the search index is being built: of some chats, only messages with exactly this text are found\n"
    assert told.stderr == missed.stderr == as_json.stderr == note
    assert "  A fox in the garden\n" in told.stdout
    assert "  Foxes are shy\n" in told.stdout
    assert missed.stdout == "No message matches.\n"
    (hit,) = msgspec.json.decode(as_json.stdout)
    assert hit["rank"] == 0
    assert hit["snippet"] == hit["message"]["text"]
    assert later.stderr == ""
    assert "  A fox in the garden\n" in later.stdout


# Rebuilding


def test_rebuild_only_search(samples: Path) -> None:
    """The answers stay, ranks and snippets included, and so does the rest of the index."""
    before = ask("search", "the OR bread", "-n", "1000", at=samples)
    generation = (samples / "index" / "CURRENT").read_text()
    result = run("rebuild", "--only", "search", at=samples)

    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(
        r"Rebuilt the search index from the messages in \d+\.\d s, up to position 22\.\n", result.stdout
    )
    assert ask("search", "the OR bread", "-n", "1000", at=samples) == before
    assert (samples / "index" / "CURRENT").read_text() == generation
    assert ask("rebuild", "--only", "search", at=samples).keys() == {"position", "seconds"}
    assert "'words' is not 'search'" in fails(2, "rebuild", "--only", "words", at=samples)


def test_rebuild_reports_messages(samples: Path) -> None:
    with chatledger.open(samples) as ledger:
        total = sum(chat.message_count for chat in ledger.list_chats())
        told: list[tuple[int, int]] = []
        ledger.rebuild(only="search", progress=lambda done, of: told.append((done, of)))
        ledger.rebuild(only="search")

    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert told == sorted(told)


def test_an_interrupted_rebuild_goes_on(notes: Path) -> None:
    """At once when it is called again; else when the ledger is opened."""
    with degraded(notes) as ledger:
        assert ledger.search("garden fox").is_degraded
        ledger.append("trip", [_note("t3", "user", "another fox", day=5)])
        ledger.rebuild(only="search")
        again = ledger.search("shy fox OR another")
    with degraded(notes):
        pass
    with chatledger.open(notes) as ledger:
        opened = ledger.search("shy fox OR another")

    assert [hit.message.id for hit in again] == [hit.message.id for hit in opened]
    assert {hit.message.id for hit in again} == {"t2", "t3"}
    assert not again.is_degraded
    assert not opened.is_degraded


@pytest.mark.parametrize("only", ["words", "", "Search", 1, ["search"]])
def test_rebuild_of_nothing_known(notes: Path, only: Any) -> None:
    with chatledger.open(notes) as ledger:
        with pytest.raises(InvalidValueError, match="only may be 'search' or None"):
            ledger.rebuild(only=only)
        assert not ledger.search("fox").is_degraded


@pytest.mark.anyio
async def test_rebuild_and_search_awaited(notes: Path) -> None:
    async with chatledger.open_async(notes) as ledger:
        before = await ledger.search("fox")
        await ledger.rebuild(only="search")
        assert await ledger.search("fox") == before
        with pytest.raises(InvalidValueError):
            await ledger.rebuild(only="words")
    assert [hit.message.id for hit in before] == ["t2", "t1"]


def test_fields(tmp_path: Path) -> None:
    """`--in` names what is searched, one or several; a hit that is not in the text says where it is."""
    call = {"type": "tool-x", "toolCallId": "call", "state": "output-available", "input": {}}
    parts = [{**call, "output": "an okapi <mark>"}, {"type": "text", "text": "near the lake"}]
    with chatledger.open(tmp_path) as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [NewMessage("assistant", {"parts": parts}, id="m1", created_at=0)])

    assert "No message matches.\n" == run("search", "okapi", at=tmp_path).stdout
    result = run("search", "okapi", "--in", "tools", "--in", "text", at=tmp_path)
    assert "assistant  1970-01-01T00:00:00.000Z  m1  [trip]  in tools\n  an okapi <mark>\n" == result.stdout
    assert "in tools" not in run("search", "lake", "--in", "text", "--in", "tools", at=tmp_path).stdout
    assert ["tools"] == [hit["within"] for hit in ask("search", "okapi", "--in", "tools", at=tmp_path)]
    assert "reasoning" in fails(2, "search", "okapi", "--in", "outputs", at=tmp_path)
