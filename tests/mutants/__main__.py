"""
Mutation testing: `python -m tests.mutants [--sample 300 --seed 1] [target ...]`, which needs the group `mutants`.

A target is a module or a folder of `ROOMS`. Each mutant is tried on the tests of the folder that guards its module, and on no others:
a change should be noticed where it was made. Survivors are printed as `accepted.toml` has them, which says why each of them may live.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from tests.mutants.making import Mutant, MutatedModule, mutate
from tests.mutants.trying import survivors_of

ROOMS: Final = {
    "domain/chat": "tests/domain/chat",
    "domain/log": "tests/domain/log",
    "domain/proof": "tests/domain/proof",
    "infra/log/nats": "tests/infra/log",
    "infra/log/nats_server": "tests/infra/log",
    "infra/store": "tests/infra/store",
    "projections/chat": "tests/projections/chat",
    "projections/search/deletion.py": "tests/projections/search",
    "projections/search/evaluation.py": "tests/projections/search",
    "projections/search/merging.py": "tests/projections/search",
    "projections/verify": "tests/projections/verify",
}
"""Where the tests are that guard a module."""
LEAST_KILLED: Final = 0.95
LEAST_KILLED_OF_SAMPLE: Final = 0.85
ACCEPTED: Final = Path(__file__).parent / "accepted.toml"

Place: TypeAlias = tuple[str, str, str]
"""Module, function and changed lines of a mutant. Its number would change with each line of its function."""


def main(arguments: Sequence[str]) -> int:
    """Try the mutants of the targets. Returns the exit status: 1 when too many live, or others than those that may."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", default=list(ROOMS), help="modules or folders; all of them when there are none"
    )
    parser.add_argument("--sample", type=int, help="try only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--workers", type=int, default=2, help="mutants that are tried at the same time")
    options = parser.parse_args(arguments)
    modules = {path: tests for target in options.targets for path, tests in modules_of(target)}
    if not modules:
        parser.error(f"none of {', '.join(options.targets)} is in {', '.join(ROOMS)}")
    mutated = [mutate(path) for path in modules]
    mutants = [mutant for module in mutated for mutant in module.mutants]
    if options.sample is not None:
        mutants = Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    survivors: list[Mutant] = []
    for tests in sorted(set(modules.values())):
        guarded = [mutant for mutant in mutants if modules[mutant.path] == tests]
        survivors += survivors_of(
            guarded, [module for module in mutated if modules[module.path] == tests], tests, options.workers
        )
    return judge(mutants, survivors, mutated, is_sample=options.sample is not None)


def modules_of(target: str) -> Iterable[tuple[Path, str]]:
    """Yield the modules of a target with the folders of their tests."""
    for room, tests in ROOMS.items():
        for path in [Path(room)] if room.endswith(".py") else sorted(Path(room).rglob("*.py")):
            if path.is_relative_to(target):
                yield path, tests


def judge(mutants: list[Mutant], survivors: list[Mutant], mutated: list[MutatedModule], *, is_sample: bool) -> int:
    """Print the survivors that nobody accepted, and the part that was killed. Returns the exit status."""
    accepted = {
        (row["module"], row["function"], row["diff"].strip("\n"))
        for row in tomllib.loads(ACCEPTED.read_text(encoding="utf-8")).get("survivor", [])
    }
    living = {place(mutant) for mutant in survivors}
    for module, function, diff in sorted(living - accepted):
        print(f"\n[[survivor]]\nmodule = {module!r}\nfunction = {function!r}\ndiff = '''\n{diff}\n'''\nreason = ''")
    print()
    for path in [one.path for one in mutated]:
        if tried := [mutant for mutant in mutants if mutant.path == path]:
            _report(str(path), tried, survivors, accepted)
    killed = _report("all", mutants, survivors, accepted)
    if is_sample:
        return int(killed < LEAST_KILLED_OF_SAMPLE)
    paths = {str(one.path) for one in mutated}
    stale = {row for row in accepted - living if row[0] in paths}
    for module, function, diff in sorted(stale):
        print(f"accepted, but killed or gone: {module} {function}\n{diff}")
    return int(killed < LEAST_KILLED or bool(living - accepted) or bool(stale))


def place(mutant: Mutant) -> Place:
    """Return what names a mutant as long as its lines stay."""
    return str(mutant.path), mutant.function, mutant.diff


def _report(title: str, mutants: list[Mutant], survivors: list[Mutant], accepted: set[Place]) -> float:
    living = [mutant for mutant in mutants if mutant in survivors]
    killed = 1 - len(living) / len(mutants) if mutants else 1.0
    reasons = sum(place(mutant) in accepted for mutant in living)
    print(f"{title}: {killed:.1%} of {len(mutants)} killed; {len(living)} live, {reasons} of them with a reason")
    return killed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
