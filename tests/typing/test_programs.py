"""Programs as users write them, against the package as it is installed: strict type checkers accept them, and report mistakes."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = sorted(Path(__file__).with_name("programs").glob("*.py"))
MISTAKES: Final = """\
from typing import assert_type
import chatledger
from chatledger import AsyncLedger, Ledger
from chatledger.forms import Form
from chatledger.langgraph import LedgerSaver
def plain(ledger: Ledger) -> None:
    ledger.append("trip", [chatledger.user(1)])  # wrong
    ledger.get_chat("trip").title  # wrong
    ledger.creat_chat("trip")  # wrong
    ledger.move_head("trip", "main", "m1")  # wrong
    assert_type(ledger.fork("trip", "m1"), str)  # wrong
    chatledger.open("memory:", durability="never")  # wrong
async def asynchronous(ledger: AsyncLedger) -> None:
    len(ledger.get_messages("trip"))  # wrong
    await ledger.create_chat("trip", titel="Riga")  # wrong
    for recorded in ledger.history("trip"):  # wrong
        pass
LedgerSaver("./chatledger-data")  # wrong
Form(name="said", read=len)  # wrong
"""
WRONG: Final = {number for number, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")}


@pytest.mark.lint
def test_programs_are_accepted_and_each_mistake_is_reported() -> None:
    # The same place each time, as mypy's cache there saves ten seconds.
    folder = ROOT / "build/typing"
    for made in ("env", "user"):
        shutil.rmtree(folder / made, ignore_errors=True)
    venv.create(folder / "env")
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    # Files, as a wheel has them: `py.typed` lies where users have it, and no settings of this project apply.
    shutil.copytree(ROOT / "src/chatledger", site / "chatledger", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    user = folder / "user"
    shutil.copytree(PROGRAMS[0].parent, user, ignore=shutil.ignore_patterns("__pycache__"))
    (user / "mistakes.py").write_text(MISTAKES, encoding="utf-8")
    # LangGraph says that it is typed in some of its packages only, which a strict pyright would name where it is imported.
    settings = {"typeCheckingMode": "strict", "reportMissingTypeStubs": False}
    (user / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    python = str(folder / "env/bin/python")
    commands = {
        "mypy": ["--strict", "--config-file=", f"--cache-dir={folder / 'cache'}", "--python-executable", python, "."],
        "pyright": ["--pythonpath", python],
    }
    running = {
        checker: subprocess.Popen(
            [sys.executable, "-m", checker, *arguments],
            cwd=user,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for checker, arguments in commands.items()
    }
    for checker, process in running.items():
        report, _ = process.communicate()
        faulty = {(file, int(line)) for file, line in re.findall(r"(\w+\.py):(\d+):.*\berror: ", report)}

        assert {("mistakes.py", line) for line in WRONG} == faulty, f"{checker}:\n{report}"


@pytest.mark.guard
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_runs(program: Path) -> None:
    """What type checkers accept does what it says."""
    outcome = subprocess.run([sys.executable, "-W", "error", str(program)], capture_output=True, text=True, check=False)

    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout
