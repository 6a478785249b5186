"""
Coverage-guided fuzzing: `python -m tests.fuzz.coverage --seconds 60 [target ...]`, which needs the group `fuzz`.

Each target runs in a process of its own, which atheris takes over. What it finds is kept in `build/fuzz`: inputs that reach
new code, from which the next run goes on, and inputs that fail. `--reproduce FILE target` reads one of these, without atheris.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

OUT: Final = Path("build/fuzz")
SLOW_INPUT_S: Final = 20
MEMORY_MB: Final = 3000
_LATE_S: Final = 600
"""Seconds that a process may take beside fuzzing: to read what earlier runs found, and to end."""


class Outcome(NamedTuple):
    """The outcome of a run of one target."""

    name: str
    executions: int
    edges: int
    features: int
    findings: list[Path]


def main(arguments: Sequence[str]) -> int:
    """Fuzz what the arguments say. Returns the exit status: 1 when there was a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage", description=__doc__)
    parser.add_argument("targets", nargs="*", help="names of targets; all when there are none")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--list", action="store_true", help="say which targets there are")
    parser.add_argument("--reproduce", type=Path, metavar="FILE", help="read this input")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        fuzz(options.targets[0], options.seconds)
    from tests.fuzz.fuzz_targets import TARGETS, ready

    names: list[str] = options.targets or list(TARGETS)
    unknown = set(names) - set(TARGETS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if options.list:
        print(*TARGETS, sep="\n")
    elif options.reproduce:
        with ready(names[0]) as target:
            target.check(options.reproduce.read_bytes())
    else:
        outcomes = [run(name, options.seconds) for name in names]
        print(table(outcomes))
        return int(any(outcome.findings for outcome in outcomes))
    return 0


def run(name: str, seconds: int) -> Outcome:
    """Fuzz a target in a process of its own, and say what was found."""
    folder = OUT / name
    for kind in ("corpus", "findings"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    before = set((folder / "findings").iterdir())
    print(f"{name} ...", flush=True)
    command = [sys.executable, "-m", "tests.fuzz.coverage", "--child", "--seconds", str(seconds), name]
    log = folder / "log.txt"
    with log.open("wb") as said:
        status = subprocess.run(command, stdout=said, stderr=said, timeout=seconds + _LATE_S, check=False).returncode
    text = log.read_text(errors="replace")
    findings = sorted(set((folder / "findings").iterdir()) - before)
    if status and not findings:  # it did not start, or something killed it
        findings = [log]
    for finding in findings:
        traceback = text.partition("Uncaught Python exception")[2].partition("ERROR: libFuzzer")[0]
        print(traceback or text[-3000:])
        print(f"reproduce: {sys.executable} -m tests.fuzz.coverage --reproduce {finding} {name}\n", flush=True)
    executions = re.findall(r"^stat::number_of_executed_units:\s*(\d+)", text, re.MULTILINE)
    seen = re.findall(r"^#(\d+).* cov: (\d+) ft: (\d+)", text, re.MULTILINE)
    last = seen[-1] if seen else (0, 0, 0)
    return Outcome(name, int(executions[-1] if executions else last[0]), int(last[1]), int(last[2]), findings)


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes in Markdown."""
    lines = ["| target | executions | edges | features | findings |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {one.name} | {one.executions:,} | {one.edges:,} | {one.features:,} | {len(one.findings)} |"
        for one in outcomes
    ]
    findings = sum(len(one.findings) for one in outcomes)
    lines.append(f"| all | {sum(one.executions for one in outcomes):,} | | | {findings} |")
    return "\n".join(lines)


def fuzz(name: str, seconds: int) -> None:
    """Fuzz a target in this process, which ends with it."""
    atheris: Any = import_module("atheris")  # not there when the code is linted

    with atheris.instrument_imports(include=["chatledger"]):
        import tests.fuzz.fuzz_targets as targets
    from tests.fuzz.fuzz_inputs import WILD

    folder = OUT / name
    with targets.ready(name) as target:
        for seed in target.seeds:
            (folder / "corpus" / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
        dictionary = folder / "dictionary"
        dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in WILD if 0 < len(word) <= 64))
        settings = [
            f"-max_total_time={seconds}",
            "-len_control=0",
            f"-max_len={max(target.max_bytes, *map(len, target.seeds))}",
            f"-timeout={SLOW_INPUT_S}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-dict={dictionary}",
            f"-artifact_prefix={folder / 'findings'}/",
            "-print_final_stats=1",
        ]
        mutator: dict[str, Any] = {}
        at = target.msgpack_at
        if at is not None:

            def mutate(raw: bytes, limit: int, seed: int) -> bytes:
                random = Random(seed)
                changed = raw[:at] + _other_value(raw[at:], random) if random.random() < 0.5 else raw
                return changed[:limit] if changed != raw else atheris.Mutate(raw, limit)

            mutator = {"custom_mutator": mutate}
        atheris.Setup([sys.argv[0], *settings, str(folder / "corpus")], target.check, **mutator)
        atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _other_value(raw: bytes, random: Random) -> bytes:
    """Msgpack with another value somewhere in it; unchanged when it is none."""
    import msgspec
    from tests.fuzz.fuzz_inputs import WILD, with_odd_part

    odds: list[Any] = [
        *(None, True, 0, 1, -1, 2**31, 2**32, 2**63, 2**64 - 1, -(2**63), random.randrange(300)),
        *(0.5, float("nan"), float("inf"), "", "a", "x" * 3000, "\0", [], [[]], {}, {"a": 1}, {0: 0}, [1, "a"] * 20),
        *(b"", random.randbytes(16), random.randbytes(32), msgspec.msgpack.Ext(5, b"\x91\x01"), random.choice(WILD)),
    ]
    path = [random.randrange(40) for _ in range(random.randrange(7))]
    return with_odd_part(raw, path, random.choice(odds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
