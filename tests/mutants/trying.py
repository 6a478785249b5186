"""
Mutants tried on tests: a survey finds the tests that reach each function, and a fork for each mutant runs those of its function.

mutmut's own runner copies the sources, where it does not follow the symbolic links of `src/chatledger`, and names tests on a command
line, which not all parameters of our tests survive. Here the mutated modules are imported in the place of the files, and the tests
are collected once: a mutant costs little more than its tests.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import pairwise
from multiprocessing.connection import Connection
from types import CodeType
from typing import Any, Final

import pytest
from hypothesis import Phase, settings
from mutmut.state import state
from tests.mutants.making import Mutant, MutatedModule

_MEMORY: Final = 3 * 2**30
"""Bytes that a mutant may take: some do not end."""
_FORK: Final = multiprocessing.get_context("fork")


def survivors_of(mutants: list[Mutant], modules: list[MutatedModule], tests: str, workers: int) -> list[Mutant]:
    """Return the mutants that no test of a folder notices. Raises `SystemExit` when the tests fail without a mutation."""
    if not mutants:
        return []
    # In a process of its own, as chatledger is imported there with these modules.
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_try_all, args=(mutants, modules, tests, workers, sender))
    process.start()
    sender.close()
    try:
        survivors: list[Mutant] = receiver.recv()
    except EOFError:
        sys.exit(f"the tests of {tests} cannot be tried")
    process.join()
    return survivors


def _try_all(mutants: list[Mutant], modules: list[MutatedModule], tests: str, workers: int, result: Connection) -> None:
    sys.meta_path.insert(0, _MutatedModules(modules))
    trials = _Trials(mutants, workers)
    marks = "not soak and not cluster and not browser and not lint"
    # A mutant has a limit of its own. Output is not captured, so that what is found can be read while the others are tried.
    options = ["-q", "-s", "--assert=plain", "-p", "no:cacheprovider", "-o", "timeout=0", "-m", marks]
    pytest.main([*options, tests], plugins=[trials])
    if trials.survivors is not None:
        result.send(trials.survivors)


class _MutatedModules(MetaPathFinder):
    """Finds modules with their mutants in the place of those on the disk."""

    def __init__(self, modules: list[MutatedModule]) -> None:
        self._modules = {module.name: module for module in modules}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        module = self._modules.get(fullname)
        if module is None:
            return None
        return spec_from_file_location(fullname, module.path, loader=_MutatedLoader(fullname, module))


class _MutatedLoader(SourceFileLoader):
    def __init__(self, fullname: str, module: MutatedModule) -> None:
        super().__init__(fullname, str(module.path.resolve()))
        self._code = module.code

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._code, self.path, "exec")


class _Trials:
    """The plugin of pytest that runs the collected tests for each mutant, instead of once. `survivors` is None if it could not."""

    def __init__(self, mutants: list[Mutant], workers: int) -> None:
        self._mutants = mutants
        self._workers = workers
        self.survivors: list[Mutant] | None = None

    def pytest_sessionstart(self) -> None:
        """Let properties try the same examples for each mutant, and not look for the smallest one that fails."""
        quick = settings(derandomize=True, database=None, phases=(Phase.explicit, Phase.generate))
        settings.register_profile("mutants", quick)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants."""
        survey = _survey(session)
        living: list[Mutant] = []
        running: dict[int, Mutant] = {}
        for mutant in self._mutants:
            items = survey.get(mutant.reached_by)
            if items is None:
                living.append(_lives(mutant, "no test reaches it"))
                continue
            if len(running) == self._workers:
                living += _ended(running)
            running[_start(mutant, items, session)] = mutant
        while running:
            living += _ended(running)
        self.survivors = living
        return True


def _survey(session: pytest.Session) -> dict[str, dict[int, float]]:
    """Run all tests without a mutation. Returns the tests that reach each function, and their seconds."""
    receiver, sender = _FORK.Pipe(duplex=False)

    def run() -> None:
        os.environ["MUTANT_UNDER_TEST"] = "stats"
        reached: dict[str, dict[int, float]] = defaultdict(dict)
        for number, item, after in _in_order(session, range(len(session.items))):
            state()._stats.clear()
            began = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            for function in state()._stats:
                reached[function][number] = time.monotonic() - began
        sender.send(None if session.testsfailed else dict(reached))

    process = _FORK.Process(target=run)
    process.start()
    sender.close()
    survey: dict[str, dict[int, float]] | None = receiver.recv()
    process.join()
    if survey is None:
        pytest.exit("tests fail without a mutation", returncode=1)
    return survey


def _in_order(session: pytest.Session, numbers: Sequence[int]) -> Iterator[tuple[int, pytest.Item, pytest.Item | None]]:
    """Yield tests with those that come after them: pytest takes down then what the next one does not need."""
    for number, after in pairwise([*numbers, None]):
        assert number is not None
        yield number, session.items[number], None if after is None else session.items[after]


def _start(mutant: Mutant, seconds: dict[int, float], session: pytest.Session) -> int:
    """Start the tests of a mutant in a process of its own. Returns its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        signal.alarm(20 + int(10 * sum(seconds.values())))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.environ["MUTANT_UNDER_TEST"] = mutant.key
        status = int(_fails(session, seconds))
    finally:
        os._exit(status)


def _fails(session: pytest.Session, seconds: dict[int, float]) -> bool:
    # Quick modules first, and the tests of a module together, which share what it sets up.
    modules: dict[Any, float] = defaultdict(float)
    for number, duration in seconds.items():
        modules[session.items[number].path] += duration
    numbers = sorted(seconds, key=lambda n: (modules[session.items[n].path], str(session.items[n].path), seconds[n]))
    for _number, item, after in _in_order(session, numbers):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed:
            return True
    return False


def _ended(running: dict[int, Mutant]) -> list[Mutant]:
    """Wait for a mutant to end. Returns it if it lives."""
    pid, status = os.wait()
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # servers that its tests started
    mutant = running.pop(pid)
    if status == 0:
        return [_lives(mutant, "no test notices it")]
    return []


def _lives(mutant: Mutant, why: str) -> Mutant:
    print(f"lives: {mutant.path} {mutant.function}\n{mutant.diff}\n({why})", flush=True)
    return mutant
