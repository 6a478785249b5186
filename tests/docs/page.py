"""
Run the examples of a page as a reader would who types along: `python page.py PAGE`, in an empty directory.

Python blocks run in order in this process and share their names; `console` and `bash` blocks run in a shell between them.
JavaScript runs as a module of Node, where that is installed.
Lines below a `$ command` are what it prints, and a `text` block after `<!-- prints -->` is what the Python block before it
printed. Times, durations and generated ids may differ, `...` stands for anything. A block after `<!-- not run: reason -->`
is left out, and one after `<!-- file: app.py -->` is written to that file. A `console` block after `<!-- runs on -->` starts a
server that goes on until the page ends; what it prints first is compared. Where a page has the port 8230, a free one is used
instead, so that pages can run at the same time.
"""

import contextlib
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

LANGUAGES: Final = ("python", "console", "bash", "text", "mermaid", "json", "toml", "nginx", "javascript", "typescript")
_FENCE: Final = re.compile(r"^```(\w*)$")
_NOT_RUN: Final = re.compile(r"^<!-- not run: \S.* -->$")
_FILE: Final = re.compile(r"^<!-- file: (\S+) -->$")
_PRINTS: Final = "<!-- prints -->"
_RUNS_ON: Final = "<!-- runs on -->"
_PORT: Final = "8230"
_COMMAND_S: Final = 60
# What differs from run to run, as a pattern and what stands for it.
_CHANGING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d\.\d{3}Z)?"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? m?s\b"), "<duration>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "<id>"),
)


class Block(NamedTuple):
    """A fenced block: what stands in it, and the line it begins on."""

    language: str
    text: str
    line: int
    is_run: bool
    is_output: bool
    file: str | None = None
    runs_on: bool = False


class ExampleError(Exception):
    """A page says something else than what happens."""


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page. A fence without a language, or an unknown one, is an error."""
    lines = iter(enumerate(text.split("\n"), 1))
    mark = ""
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            mark = line or mark
            continue
        if fence[1] not in LANGUAGES:
            msg = f"line {number}: a block must say its language, one of {', '.join(LANGUAGES)}"
            raise ExampleError(msg)
        content = [inner for _, inner in takewhile(lambda numbered: numbered[1] != "```", lines)]
        file, text = _FILE.match(mark), "\n".join(content) + "\n"
        is_run, is_output = not _NOT_RUN.match(mark), mark == _PRINTS
        yield Block(fence[1], text, number + 1, is_run, is_output, file and file[1], mark == _RUNS_ON)
        mark = ""


def matches(expected: str, actual: str) -> bool:
    """Whether a text is as expected, but for what changes; `...` stands for anything, blanks at line ends do not count."""
    pattern = ".*?".join(map(re.escape, _tidy(expected).removesuffix("\n...").split("...")))
    if expected.rstrip().endswith("\n..."):
        pattern += r"(\n.*)?"
    return re.fullmatch(pattern, _tidy(actual), re.DOTALL) is not None


def _tidy(text: str) -> str:
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def run(page: Path) -> None:
    """Run a page. Raises `ExampleError`, or what its Python raises."""
    names: dict[str, object] = {"__name__": "__main__"}
    sys.path.insert(0, "")  # as for who types along, in the directory
    text = page.read_text(encoding="utf-8")
    if _PORT in text:
        text = text.replace(_PORT, os.environ.setdefault("CHATLEDGER_PORT", _free_port()))
    with contextlib.ExitStack() as servers:
        _run_blocks(text, page, names, servers)


def _run_blocks(text: str, page: Path, names: dict[str, object], servers: contextlib.ExitStack) -> None:
    printed = ""
    for block in blocks(text):
        if block.is_output:
            _compare(block.text, printed, f"line {block.line}")
        elif not block.is_run:
            continue
        elif block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            printed = _run_python(block, page, names)
        elif block.runs_on:
            _start(block, servers)
        elif block.language == "console":
            _run_console(block)
        elif block.language == "bash":
            _check(block.text, f"line {block.line}")
        elif block.language == "javascript" and shutil.which("node") is not None:
            Path(f"{block.line}.mjs").write_text(block.text, encoding="utf-8")
            _check(f"node {block.line}.mjs", f"line {block.line}")


def _run_python(block: Block, page: Path, names: dict[str, object]) -> str:
    source = "\n" * (block.line - 1) + block.text  # so that tracebacks name the line of the page
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, str(page), "exec"), names)
    return output.getvalue()


def _run_console(block: Block) -> None:
    """Run the commands of a session, and compare what each prints."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if parts[0].strip():
        msg = f"line {block.line}: a console block begins with `$ `"
        raise ExampleError(msg)
    for part in parts[1:]:
        command, *rest = part.split("\n")
        while command.endswith("\\"):
            command += "\n" + rest.pop(0).removeprefix("> ")
        expected = "\n".join(rest).strip("\n")
        where = f"line {block.line}, `{command}`"
        fails = expected.startswith("error: ")
        printed = _check(command, where, fails=fails)
        if expected:
            _compare(expected, printed, where)


def _start(block: Block, servers: contextlib.ExitStack) -> None:
    """Start what goes on until the page ends, and compare what it prints first."""
    command, *lines = block.text.removeprefix("$ ").rstrip("\n").split("\n")
    with Path(f"{block.line}.log").open("wb") as log:
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    servers.enter_context(server)
    servers.callback(server.terminate)
    assert server.stdout is not None
    _compare("\n".join(lines), "".join(server.stdout.readline() for _ in lines), f"line {block.line}, `{command}`")


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _check(command: str, where: str, *, fails: bool = False) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        check=False,
    )
    if (done.returncode != 0) != fails:
        msg = f"{where} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        raise ExampleError(msg)
    return done.stderr if fails else done.stdout


def _compare(expected: str, actual: str, where: str) -> None:
    if not matches(expected, actual):
        msg = f"{where}: the page shows\n\n{expected}\n\nbut it is\n\n{actual}"
        raise ExampleError(msg)


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]))
    except BaseException:  # noqa: BLE001 - whatever an example raises is the result
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # threads that an example left behind would keep the process
