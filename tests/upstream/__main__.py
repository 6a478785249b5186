"""
Tests of others with ledgers in the place of their stores: `python -m tests.upstream`, which needs the group `upstream`.

LangGraph's have `LedgerSaver` in the place of its savers and `LedgerBaseStore` in that of its stores, those of OpenAI's Agents SDK
`LedgerSession` in that of its sessions, and those of Strands, which need an environment of their own (`make adapters`), `LedgerSessionManager`.

The files come from the source distributions of the installed versions, and are kept in `build/upstream`, unmodified.
Plugins of pytest put ledgers in, and `known.toml` says which tests cannot pass, and why.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
OUT: Final = Path("build/upstream")


class Suite(NamedTuple):
    """Tests of one distribution: those of its files that are about savers, or about stores."""

    name: str
    distribution: str
    files: Sequence[str] = ()
    """All that have something to do with savers when empty."""
    plugin: str = "ledger_plugin"


_SAVERS: Final = ("sync_checkpointer", "async_checkpointer", "MemorySaver")
"""Words that files of `langgraph` about savers name."""
_FIXTURES: Final = _SAVERS[:2]

SUITES: Final = {
    suite.name: suite
    for suite in (
        Suite("langgraph", "langgraph"),
        Suite("checkpoint", "langgraph-checkpoint", ["tests/test_memory.py"]),
        Suite("store", "langgraph-checkpoint", ["tests/test_store.py"]),
        Suite(
            "sqlite-store",
            "langgraph-checkpoint-sqlite",
            ["tests/test_async_store.py", "tests/test_store.py", "tests/test_ttl.py"],
        ),
        Suite(
            "sqlite",
            "langgraph-checkpoint-sqlite",
            [
                "tests/test_aiosqlite.py",
                "tests/test_conformance_delta.py",
                "tests/test_delta_channel_migration.py",
                "tests/test_delta_parent_walk.py",
                "tests/test_get_delta_channel_history.py",
                "tests/test_sqlite.py",
                "tests/test_writes_task_path_migration.py",
            ],
        ),
        Suite(
            "postgres",
            "langgraph-checkpoint-postgres",
            [
                "tests/test_async.py",
                "tests/test_conformance_delta.py",
                "tests/test_delta_pagination.py",
                "tests/test_delta_plain_value_seed.py",
                "tests/test_prune.py",
                "tests/test_sync.py",
            ],
        ),
        Suite(
            "strands",
            "strands-agents",
            [
                "tests/strands/session/test_file_session_manager.py",
                "tests/strands/session/test_repository_session_manager.py",
            ],
            plugin="strands_plugin",
        ),
        Suite(
            "agents",
            "openai-agents",
            [
                "tests/memory/test_session.py",
                "tests/memory/test_session_limit.py",
                "tests/extensions/memory/test_advanced_sqlite_session.py",
                "tests/extensions/memory/test_sqlalchemy_session.py",
            ],
            plugin="agents_plugin",
        ),
    )
}


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments say. Returns the exit status: 1 when a test did what `known.toml` does not expect."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all that are installed when there are none"
    )
    parser.add_argument(
        "--ledger", choices=["memory:", "directory", "defaults"], default="memory:", help="as ledger_plugin.py says"
    )
    parser.add_argument("--fixtures", action="store_true", help="of langgraph only the files with fixtures for savers")
    parser.add_argument("--workers", default="2", help="how many processes")
    parser.add_argument("--keyword", "-k", help="only tests with such names, as pytest has it")
    options = parser.parse_args(arguments)
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    suites = [SUITES[name] for name in options.suites or SUITES if options.suites or is_installed(SUITES[name])]
    folders = {suite.name: fetched(suite.distribution) for suite in suites}
    failed: list[str] = []
    for suite in suites:
        files = list(suite.files) or about_savers(folders[suite.name], _FIXTURES if options.fixtures else _SAVERS)
        print(
            f"\n{suite.distribution} {version(suite.distribution)}: {len(files)} files, ledgers {options.ledger}",
            flush=True,
        )
        started = time.monotonic()
        extra = ["-k", options.keyword] if options.keyword else []
        status = run(suite, folders[suite.name], files, [f"--ledger={options.ledger}", "-n", options.workers, *extra])
        print(f"{time.monotonic() - started:.0f} s", flush=True)
        if status:
            failed.append(suite.name)
    print(f"\nNOT AS EXPECTED: {', '.join(failed)}" if failed else "\nas expected", flush=True)
    return bool(failed)


def is_installed(suite: Suite) -> bool:
    """Whether the distribution of a suite is in this environment."""
    try:
        version(suite.distribution)
    except PackageNotFoundError:
        return False
    return True


def fetched(distribution: str) -> Path:
    """The folder with the tests of the installed version, which are fetched if they are not here yet."""
    name = f"{distribution.replace('-', '_')}-{version(distribution)}"
    folder = OUT / name
    if not (folder / "tests").is_dir():
        OUT.mkdir(parents=True, exist_ok=True)
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        wanted = ["--no-binary", distribution, "--dest", str(OUT), f"{distribution}=={version(distribution)}"]
        subprocess.run([*download, *wanted], check=True)
        with tarfile.open(OUT / f"{name}.tar.gz") as archive:
            # Not the library itself: the installed one is to be tested.
            members = [one for one in archive if one.name.startswith((f"{name}/tests/", f"{name}/pyproject.toml"))]
            archive.extractall(OUT, members, filter="data")
    return folder


def about_savers(folder: Path, words: Sequence[str]) -> list[str]:
    """The files of tests in which one of these words stands."""
    paths = sorted((folder / "tests").glob("test_*.py"))
    return [f"tests/{path.name}" for path in paths if any(word in path.read_text() for word in words)]


def run(suite: Suite, folder: Path, files: Sequence[str], options: Sequence[str]) -> int:
    """Run files of a suite in their folder, as its own settings have it. Returns the exit status."""
    command = [sys.executable, "-m", "pytest", "-p", suite.plugin, f"--suite={suite.name}", "-p", "no:langsmith_plugin"]
    quiet = ["-o", "addopts=", "-p", "no:cacheprovider", "-q", "--tb=short", "-W", "ignore", "--timeout=120"]
    # The plugins alone, by their path: the tests of others are a package `tests` too. And no servers but ours.
    paths = [str(HERE.absolute()), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "NO_DOCKER": "true"}
    return subprocess.run([*command, *quiet, *options, *files], cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
