"""Transcripts of coding agents: each line is kept once, byte for byte, in its place, however its file came about."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count, product
from pathlib import Path
from threading import Timer
from typing import Any, Final

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.coding_agents import (
    CLAUDE,
    CODEX,
    GEMINI,
    GEMINI_NAME,
    GEMINI_SESSION,
    PI,
    PI_SESSION,
    SESSION,
    THREAD,
    as_bytes,
    claude_entry,
    claude_file,
    codex_file,
    gemini_file,
    gemini_line,
    pi_file,
)

import chatledger
from chatledger import Ledger
from chatledger.domain.chat.lines import bytes_of, value_of
from chatledger.domain.forms.claude_code import message_in
from chatledger.domain.forms.reading import items_of, role_of
from chatledger.infra.exchange.agents import keeping
from chatledger.infra.exchange.agents.claude_code import line_of
from chatledger.infra.exchange.agents.every import AGENTS, since_summary, whole_chain
from chatledger.infra.exchange.agents.following import exported
from chatledger.infra.exchange.agents.keeping import AgentFiles, Keeper, Round

CLAUDE_CHAT = f"claude/-src-trip/{SESSION}"
CODEX_CHAT = f"codex/{THREAD}"
GEMINI_CHAT = f"gemini-cli/{GEMINI_NAME}"
PI_CHAT = f"pi/{PI_SESSION}"
Put = Callable[[Path, bytes], Path]
CASES: list[tuple[str, Put, list[dict[str, Any]]]] = [
    (CLAUDE_CHAT, claude_file, CLAUDE),
    (CODEX_CHAT, codex_file, CODEX),
    (GEMINI_CHAT, gemini_file, GEMINI),
    (PI_CHAT, pi_file, PI),
]
BOTH = pytest.mark.parametrize(("chat_id", "put", "lines"), CASES, ids=["claude-code", "codex", "gemini-cli", "pi"])


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        yield opened


def keeper_of(ledger: Ledger, home: Path) -> Keeper:
    sources = [AgentFiles(agent, agent.roots({}, home)) for agent in AGENTS.values()]
    return Keeper(sources, lambda: contextlib.nullcontext(ledger), user="ada")


def keep(ledger: Ledger, home: Path) -> Round:
    return keeper_of(ledger, home).once()


def exported_of(ledger: Ledger, chat_id: str) -> bytes:
    chat = ledger.get_chat(chat_id)
    assert chat is not None
    return exported(ledger, chat, AGENTS[str((chat.metadata or {})["agent"])])


def texts(ledger: Ledger, chat_id: str, branch: str | None = None) -> list[str]:
    return [message.text for message in ledger.get_messages(chat_id, branch=branch) if message.text]


@BOTH
def test_a_session_is_kept_byte_for_byte_and_once(
    ledger: Ledger, tmp_path: Path, chat_id: str, put: Put, lines: list[dict[str, Any]]
) -> None:
    path = put(tmp_path, as_bytes(lines))
    before = [path.stat().st_mtime_ns, path.read_bytes()]
    keep(ledger, tmp_path)
    position = ledger.position

    assert exported_of(ledger, chat_id) == as_bytes(lines)
    assert texts(ledger, chat_id)[0] == "Where is fado sung?"
    assert texts(ledger, chat_id)[-2:] == ["And opera?", "In Chiado."], "what was said anew is the active branch"
    assert texts(ledger, chat_id, "main")[-2:] == ["And jazz?", "In Baixa."], "what it replaced is still there"
    assert len(ledger.list_branches(chat_id)) == 2
    keep(ledger, tmp_path)
    assert ledger.position == position, "nothing is new"
    os.utime(path, (1, 1))
    keep(ledger, tmp_path)
    assert ledger.position <= position + 1, "its time only"
    assert path.read_bytes() == before[1], "its own file is only read"


@BOTH
def test_metadata_and_titles_come_with_the_lines(
    ledger: Ledger, tmp_path: Path, chat_id: str, put: Put, lines: list[dict[str, Any]]
) -> None:
    put(tmp_path, as_bytes(lines))
    keep(ledger, tmp_path)
    chat = ledger.get_chat(chat_id)

    assert chat is not None
    told = chat.metadata or {}
    branch = "main" if chat_id in {CLAUDE_CHAT, CODEX_CHAT} else None
    assert (told["cwd"], told.get("git_branch"), chat.user_id) == ("/src/trip", branch, "ada")
    assert told["model"] in {"claude-test", "gpt-test", "gemini-test", "pi-test"}
    assert chat.title == ("Music in Lisbon" if chat_id in {CLAUDE_CHAT, PI_CHAT} else "Where is fado sung?")
    assert len({recorded.event.command_id for recorded in ledger.history()}) == 1, "one commit for all of it"


@pytest.mark.guard
@BOTH
def test_however_a_file_grew_the_ledger_is_the_same(
    tmp_path: Path, chat_id: str, put: Put, lines: list[dict[str, Any]]
) -> None:
    """Cut at each byte of the last three lines, and then whole."""
    whole = as_bytes(lines)
    start = len(as_bytes(lines[:-3]))
    expected: list[Any] = []
    for cut in (len(whole), *range(start, len(whole), 7), start + 1, len(whole) - 1):
        with chatledger.open("memory:") as ledger:
            for content in (whole[:cut], whole):
                put(tmp_path, content)
                keep(ledger, tmp_path)
            assert exported_of(ledger, chat_id) == whole
            branches = {branch.name: texts(ledger, chat_id, branch.name) for branch in ledger.list_branches(chat_id)}
            expected = expected or [branches]
            assert [branches] == expected, f"cut at {cut}"


@BOTH
def test_a_watcher_lets_what_says_nothing_wait(
    ledger: Ledger, tmp_path: Path, chat_id: str, put: Put, lines: list[dict[str, Any]]
) -> None:
    """Line by line, and no message is made for bookkeeping alone."""
    keeper = keeper_of(ledger, tmp_path)
    for number in range(1, len(lines) + 1):
        put(tmp_path, as_bytes(lines[:number]))
        keeper._keep(ledger, list(keeper._files()), at_end=False)  # what `watch` does each second
    names = {
        message.name
        for branch in ledger.list_branches(chat_id)
        for message in ledger.get_messages(chat_id, branch=branch.name)
    }

    assert "bookkeeping" not in names
    assert as_bytes(lines).startswith(exported_of(ledger, chat_id)), "the last line waits"
    keep(ledger, tmp_path)
    assert exported_of(ledger, chat_id) == as_bytes(lines)


def test_a_subagent_that_begins_long_after_its_folder_is_seen(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder had no file when files were listed, so nobody looked at it until they were listed again after ten minutes."""
    for name, value in {"_LIVE_S": 0.01, "_FOLDERS_S": 0.01, "_ALL_S": 0.05, "_LIST_S": 1e9}.items():
        monkeypatch.setattr(keeping, name, value)
    path = claude_file(tmp_path, as_bytes(CLAUDE[:6]))
    keeper = keeper_of(ledger, tmp_path)
    folder, listings = path.with_suffix("") / "subagents", count(1)

    def list_files(*names: Any) -> Iterator[Any]:
        if next(listings) == 2:  # as its folder came; the next one is due a minute later
            Timer(
                0.3, (folder / "agent-a1.jsonl").write_bytes, [as_bytes([claude_entry("s1", None, "user", "late")])]
            ).start()
        return Keeper._files(keeper, *names)

    def tell(outcome: Round) -> None:
        if outcome.counts["claude-code", "new"] and not folder.exists():
            Timer(0.1, folder.mkdir, kwargs={"parents": True}).start()
        if ledger.search("late"):
            raise KeyboardInterrupt

    monkeypatch.setattr(keeper, "_files", list_files)
    with pytest.raises(KeyboardInterrupt):
        keeper.watch(tell)


def test_torn_and_glued_lines_are_kept_and_read(ledger: Ledger, tmp_path: Path) -> None:
    """A client that was killed leaves half a line, to which it appends the next one."""
    glued = claude_entry("u9", "a8", "user", "What of the glued line?")
    content = as_bytes(CLAUDE[:10]) + as_bytes([CLAUDE[9]])[:40]
    path = claude_file(tmp_path, content)
    assert keep(ledger, tmp_path).problems == []
    path.write_bytes(
        content
        + json.dumps(glued, separators=(",", ":")).encode()
        + b"\n"
        + b"\xff\xfe no text\r\n\n"
        + as_bytes(CLAUDE[-3:])
    )
    outcome = keep(ledger, tmp_path)

    assert exported_of(ledger, CLAUDE_CHAT) == path.read_bytes()
    assert [problem.rpartition(":")[0] for problem in outcome.problems] == [f"{path}:11", f"{path}:12"]
    assert ledger.search("glued")
    assert not outcome.failures


def test_a_program_s_own_way_to_write_json_comes_back(ledger: Ledger, tmp_path: Path) -> None:
    lines = [
        *(json.dumps(entry).encode() for entry in CLAUDE[:6]),
        b'{"type":"x","n":1.0e3,"big":123456789012345678901234567890}',
        b'{"a":1,"a":2}',
        b"[1]",
        b"5",
    ]
    path = claude_file(tmp_path, b"\n".join(lines) + b"\n")
    keep(ledger, tmp_path)

    assert exported_of(ledger, CLAUDE_CHAT) == path.read_bytes()
    assert texts(ledger, CLAUDE_CHAT) == ["Where is fado sung?", CLAUDE[5]["message"]["content"][0]["text"]]


@BOTH
def test_a_file_that_was_cut_or_rewritten_goes_on_as_a_branch(
    ledger: Ledger, tmp_path: Path, chat_id: str, put: Put, lines: list[dict[str, Any]]
) -> None:
    put(tmp_path, as_bytes(lines))
    keep(ledger, tmp_path)
    cut = as_bytes(lines[:-2])
    put(tmp_path, cut)
    keep(ledger, tmp_path)
    assert cut.startswith(exported_of(ledger, chat_id))
    last = json.loads(json.dumps(lines[-2]).replace("Chiado", "Rossio"))  # under the same id
    content = as_bytes([*lines[:-2], last])
    put(tmp_path, content)
    keep(ledger, tmp_path)

    assert exported_of(ledger, chat_id) == content
    assert texts(ledger, chat_id)[-2:] == ["And opera?", "In Rossio."]
    assert ledger.search("Chiado"), "nothing that was kept is removed"


def test_copies_and_moved_files_write_nothing_anew(ledger: Ledger, tmp_path: Path) -> None:
    home, backup = tmp_path / "home", tmp_path / "backup"
    path = codex_file(home, as_bytes(CODEX))
    keep(ledger, home)
    position = ledger.position
    codex_file(backup, as_bytes(CODEX))
    keep(ledger, backup)
    codex_file(backup, as_bytes(CODEX[:9]))
    keep(ledger, backup)
    assert ledger.position == position, "a backup has nothing new"

    archived = home / ".codex" / "archived_sessions" / path.name
    archived.parent.mkdir()
    path.rename(archived)
    keep(ledger, home)
    packed = archived.with_name(archived.name + ".zst")
    packed.write_bytes(zstandard.compress(archived.read_bytes()))
    archived.unlink()
    keep(ledger, home)
    assert exported_of(ledger, CODEX_CHAT) == as_bytes(CODEX)
    assert len(ledger.list_branches(CODEX_CHAT)) == 2
    packed.unlink()
    keep(ledger, home)
    assert exported_of(ledger, CODEX_CHAT) == as_bytes(CODEX), "what its agent deleted stays"


def test_another_session_under_the_same_id_is_named(ledger: Ledger, tmp_path: Path) -> None:
    codex_file(tmp_path / "one", as_bytes(CODEX))
    codex_file(tmp_path / "two", as_bytes([CODEX[0], *CODEX[5:]]))
    keep(ledger, tmp_path / "one")
    outcome = keep(ledger, tmp_path / "two")

    assert len(outcome.failures) == 1
    assert "are of one session" in outcome.failures[0]
    assert exported_of(ledger, CODEX_CHAT) == as_bytes(CODEX)


def test_what_was_deleted_does_not_come_back(ledger: Ledger, tmp_path: Path) -> None:
    claude_file(tmp_path, as_bytes(CLAUDE))
    keep(ledger, tmp_path)
    ledger.delete_chat(CLAUDE_CHAT)
    keep(ledger, tmp_path)

    assert ledger.get_chat(CLAUDE_CHAT) is None


def test_subagents_are_sessions_of_their_own(ledger: Ledger, tmp_path: Path) -> None:
    path = claude_file(tmp_path, as_bytes(CLAUDE))
    beside = path.with_suffix("") / "subagents"
    beside.mkdir(parents=True)
    entry = claude_entry("u1", None, "user", "Search!", isSidechain=True)
    (beside / "agent-1.jsonl").write_bytes(as_bytes([entry]))
    (beside / "agent-1.meta.json").write_text('{"agentType":"Explore","toolUseId":"t1"}')
    keep(ledger, tmp_path)
    chat = ledger.get_chat(f"{CLAUDE_CHAT}/subagents%2Fagent-1")

    assert chat is not None
    assert ((chat.metadata or {})["parent"], (chat.metadata or {})["tool_call_id"]) == (CLAUDE_CHAT, "t1")
    assert texts(ledger, chat.id) == ["Search!"]


def test_outputs_that_stand_beside_a_transcript_are_kept_with_it(ledger: Ledger, tmp_path: Path) -> None:
    """Claude Code deletes them with the session. No other file is read, whatever a transcript names."""
    secret = tmp_path / "secret.txt"
    secret.write_text("not yours")
    path = claude_file(tmp_path, b"")
    folder = path.with_suffix("") / "tool-results"
    folder.mkdir(parents=True)
    (folder / "t1.txt").write_text("a long output " * 1000)
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "(cut)"}]
    lines = [
        claude_entry(f"u{number}", None, "user", result, toolUseResult={"persistedOutputPath": str(named)})
        for number, named in enumerate((folder / "t1.txt", secret, folder / "gone.txt"))
    ]
    path.write_bytes(as_bytes(lines))
    keep(ledger, tmp_path)
    stored = [
        message.data
        for branch in ledger.list_branches(CLAUDE_CHAT)
        for message in ledger.get_messages(CLAUDE_CHAT, branch=branch.name)
    ]

    assert "a long output" in json.dumps(stored)
    assert "not yours" not in json.dumps(stored)
    assert exported_of(ledger, CLAUDE_CHAT) == as_bytes(lines)
    os.utime(path, (1, 1))
    path.write_bytes(as_bytes([*lines[:2], lines[2] | {"cwd": "/other"}]))
    keep(ledger, tmp_path)
    assert exported_of(ledger, CLAUDE_CHAT) == path.read_bytes(), "comparing does not stumble over it"


@BOTH
def test_lines_of_other_agents_are_kept_and_say_what_they_can(
    ledger: Ledger, tmp_path: Path, chat_id: str, put: Put, lines: list[dict[str, Any]]
) -> None:
    """No line is an error, and none is lost, whatever a next version writes."""
    odd: list[Any] = [{}, {"type": None}, {"type": 5, "payload": 3}, {"uuid": 7, "parentUuid": ["x"], "type": "user"}]
    odd += [{"type": "user", "uuid": "q1", "parentUuid": "q1", "message": {"role": "user", "content": [None, 5, {}]}}]
    odd += [
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [None, 3]}},
        {"payload": None, "type": "response_item"},
    ]
    content = as_bytes([*CLAUDE, *CODEX, *GEMINI, *PI, *odd, *CLAUDE, *CODEX, *GEMINI, *PI])
    put(tmp_path, content)
    outcome = keep(ledger, tmp_path)

    assert not outcome.failures
    assert exported_of(ledger, chat_id) == content
    ledger.verify()


def test_a_compacted_session_is_one_branch(ledger: Ledger, tmp_path: Path) -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "c1",
        "parentUuid": None,
        "logicalParentUuid": "a10",
    }
    summary = claude_entry(
        "u12", "c1", "user", "They spoke of music.", isCompactSummary=True, isVisibleInTranscriptOnly=True
    )
    claude_file(tmp_path, as_bytes([*CLAUDE, boundary, summary, claude_entry("a13", "u12", "assistant", "Go on.")]))
    keep(ledger, tmp_path)

    assert texts(ledger, CLAUDE_CHAT)[0] == "Where is fado sung?"
    assert texts(ledger, CLAUDE_CHAT)[-3:] == ["In Chiado.", "They spoke of music.", "Go on."]


def test_an_answer_of_gemini_is_one_message_with_its_calls_whenever_it_was_looked_at(tmp_path: Path) -> None:
    """It is written first without them; what is set anew on a resume, and results that are told once more, say nothing."""
    expected = ["Where is fado sung?", "Let me look.", "In Alfama.", "And opera?", "In Chiado."]
    for cut in (len(GEMINI), 5, 6):
        with chatledger.open("memory:") as ledger:
            for number in (cut, len(GEMINI)):
                gemini_file(tmp_path, as_bytes(GEMINI[:number]))
                keep(ledger, tmp_path)
            assert texts(ledger, GEMINI_CHAT) == expected
            items = [
                type(item.what).__name__
                for message in ledger.get_messages(GEMINI_CHAT)
                for item in items_of(message.form, message.data)
            ]
            assert items == ["Text", "Reasoning", "Text", "Call", "Result", "Text", "Text", "Text"]
            assert len(ledger.list_branches(GEMINI_CHAT)) == (2 if cut == len(GEMINI) else 3)


def test_a_list_of_gemini_that_has_something_new_stands_for_all_before_it(ledger: Ledger, tmp_path: Path) -> None:
    summary = gemini_line("m10", "user", "They spoke of music.")
    compacted = {"$set": {"messages": [summary, gemini_line("m11", "gemini", "Got it.")]}}
    again = {"$set": {"messages": [summary, gemini_line("m11", "gemini", "Got it.")], "lastUpdated": "later"}}
    rest = [compacted, gemini_line("m12", "user", "And theatre?"), again, gemini_line("m13", "gemini", "In Rossio.")]
    gemini_file(tmp_path, as_bytes([*GEMINI, *rest]))
    agent = tmp_path / f".gemini/tmp/trip/chats/{GEMINI_SESSION}/a1.jsonl"
    agent.parent.mkdir()
    agent.write_bytes(as_bytes(GEMINI))
    keep(ledger, tmp_path)
    chat = ledger.get_chat(GEMINI_CHAT)
    sub = ledger.get_chat(f"gemini-cli/{GEMINI_SESSION}/a1")

    assert chat is not None
    assert texts(ledger, GEMINI_CHAT)[-3:] == ["They spoke of music.\nGot it.", "And theatre?", "In Rossio."]
    assert [message.text for message in since_summary(whole_chain(ledger, chat))] == texts(ledger, GEMINI_CHAT)[-3:]
    assert sub is not None
    assert (sub.metadata or {})["parent"] == GEMINI_CHAT


_BLOCKS: Final[list[Any]] = [
    {"type": "text", "text": "a"},
    {"type": "tool_result", "tool_use_id": "t", "content": "r"},
    {"type": "tool_use", "id": "t", "name": "n", "input": {}},
    {"type": "image"},
    "text",
]


@pytest.mark.parametrize("role", ["user", "assistant", "system", None])
def test_a_line_of_claude_is_said_by_whom_its_form_says(role: str | None) -> None:
    contents: list[Any] = ["", "hi", None, *([*some] for size in range(3) for some in product(_BLOCKS, repeat=size))]
    for kind, content in product(("user", "assistant", "system"), contents):
        entry = {"type": kind, "uuid": "u", "message": {"role": role, "content": content}}
        is_said = message_in(entry) is not None
        assert line_of(entry, "#1").name == (role_of("claude-code", entry, "") if is_said else "")


def test_commands_of_the_client_are_no_turns(ledger: Ledger, tmp_path: Path) -> None:
    command = (
        "<command-name>/model</command-name>\n<command-message>model</command-message>\n<command-args></command-args>"
    )
    lines = [
        claude_entry("u1", None, "user", command),
        claude_entry("u2", "u1", "user", "<local-command-stdout>Set</local-command-stdout>"),
    ]
    claude_file(tmp_path, as_bytes([*lines, claude_entry("u3", "u2", "user", "Fado?")]))
    keep(ledger, tmp_path)
    chat = ledger.get_chat(CLAUDE_CHAT)

    assert texts(ledger, CLAUDE_CHAT) == ["Fado?"]
    assert chat is not None
    assert chat.title == "Fado?"


@pytest.mark.parametrize("levels", [198, 199, 200, 201])
def test_a_line_of_many_levels_is_kept_wherever_it_stands(ledger: Ledger, tmp_path: Path, levels: int) -> None:
    """With what travels with a turn it is one level deeper in the log; the largest values are text."""
    deep = b'{"type":"attachment","deep":' + b"[" * levels + b"]" * levels + b"}"
    path = claude_file(tmp_path, deep + b"\n" + as_bytes(CLAUDE[1:]) + deep + b"\n")
    outcome = keep(ledger, tmp_path)

    assert not outcome.failures
    assert exported_of(ledger, CLAUDE_CHAT) == path.read_bytes()


@given(st.binary(max_size=60) | st.text(max_size=30).map(lambda text: json.dumps({"a": text}).encode()))
def test_any_line_comes_back(line: bytes) -> None:
    assert bytes_of(value_of(line)) == line


_PARENTS = st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=14)


@settings(max_examples=25, deadline=None)
@given(_PARENTS, st.integers(0, 20))
def test_any_tree_is_kept_as_it_is(tree: Sequence[tuple[int, bool]], cut: int) -> None:
    """Prompts that follow any earlier line: each turn has the parent that its line leads to, and the last one ends the active branch."""
    entries: list[dict[str, Any]] = []
    expected: dict[str, str | None] = {}
    for number, (above, is_turn) in enumerate(tree):
        parent = entries[above % len(entries)]["uuid"] if entries and above else None
        uuid = f"u{number}"
        turn = parent
        while turn is not None and turn not in expected:
            turn = next(entry["parentUuid"] for entry in entries if entry["uuid"] == turn)
        if is_turn:
            entries.append(claude_entry(uuid, parent, "user", f"text {number}"))
            expected[uuid] = turn
        else:
            entries.append({"type": "attachment", "uuid": uuid, "parentUuid": parent})
    with chatledger.open("memory:") as ledger, contextlib.ExitStack() as stack:
        from tempfile import TemporaryDirectory

        home = Path(stack.enter_context(TemporaryDirectory()))
        for some in (entries[:cut], entries):
            claude_file(home, as_bytes(some))
            keep(ledger, home)
        assert exported_of(ledger, CLAUDE_CHAT) == as_bytes(entries)
        head = [message for message in ledger.get_messages(CLAUDE_CHAT) if message.name == "user"]
        assert [message.text for message in head[-1:]] == [
            f"text {max((int(uuid[1:]) for uuid in expected), default=0)}"
        ] * bool(expected)
        for branch in ledger.list_branches(CLAUDE_CHAT):
            chain = [
                message for message in ledger.get_messages(CLAUDE_CHAT, branch=branch.name) if message.name == "user"
            ]
            for place, message in enumerate(chain):
                uuid = message.id.rpartition(":")[2]
                assert expected[uuid] == (chain[place - 1].id.rpartition(":")[2] if place else None)
