"""
The comparison with LangGraph's development server: `python -m tests.clients`, which needs the group `clients`.

One program of LangGraph's unmodified clients runs on `langgraph dev` and on `chatledger serve`, with one graph. The outcome of each call is
brought into a canonical form, and must be the same on both, or differ as `known.toml` says. What the servers said is kept in `build/clients`.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Final

from langgraph_sdk import get_client
from tests.support.chromium import open_browser

from .calls import AREAS, ORIGIN
from .canonical import Json
from .judging import KNOWN, Entry, compare, listed, stale, unlisted
from .pages import INTERFACES, serving, visit
from .recording import Recorder
from .servers import Server, chatledger_serve, free_port, langgraph_dev

OUT: Final = Path("build/clients")
THEIRS, OURS = "langgraph", "chatledger"


def main(arguments: Sequence[str]) -> int:
    """Compare what the arguments say. Returns the exit status: 1 when the servers differ otherwise than `known.toml` says."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"of {', '.join(AREAS)}; all when there are none")
    parser.add_argument("--last", action="store_true", help="judge what the last run kept, and run nothing")
    parser.add_argument(
        "--show", action="append", default=[], metavar="CALL", help="print both outcomes of the calls that begin so"
    )
    for name in INTERFACES:
        parser.add_argument(f"--{name}", type=Path, metavar="CHECKOUT", help=f"a folder with {name}, built: use it too")
    options = parser.parse_args(arguments)
    areas: list[str] = options.areas or list(AREAS)
    checkouts = {name: path for name in INTERFACES if (path := vars(options)[name.replace("-", "_")]) is not None}
    if strange := set(areas) - set(AREAS):
        parser.error(f"unknown: {', '.join(sorted(strange))}; there are {', '.join(AREAS)}")
    if not options.last:
        print(f"langgraph-api {version('langgraph-api')}, langgraph-sdk {version('langgraph-sdk')}", flush=True)
        keep(areas, checkouts)
    areas = [*areas, *checkouts]
    theirs, ours = (outcomes_of(name, areas) for name in (THEIRS, OURS))
    for call in theirs:
        if any(call.startswith(beginning) for beginning in options.show):
            show(call, theirs.get(call), ours.get(call))
    return judge(compare(theirs, ours), listed(), areas)


def keep(areas: Sequence[str], checkouts: Mapping[str, Path]) -> None:
    """Run the program on both servers, use interfaces on them, and keep what was seen."""
    if left_out := INTERFACES.keys() - checkouts.keys():
        print(f"without the pages of {', '.join(sorted(left_out))}: no checkout was given", flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    ports = {name: free_port() for name in checkouts}
    origins = [ORIGIN, *(f"http://localhost:{port}" for port in ports.values())]
    with (
        tempfile.TemporaryDirectory() as folder,
        langgraph_dev(Path(folder, THEIRS), OUT / f"{THEIRS}.log") as theirs,
        chatledger_serve(Path(folder, OURS), OUT / f"{OURS}.log", origins) as ours,
    ):
        servers = (theirs, ours)
        outcomes = asyncio.run(run_on(servers, areas))
        for name, checkout in checkouts.items():
            print(f"{name} on {' and '.join(server.name for server in servers)}", flush=True)
            with serving(checkout, ports[name], OUT / f"{name}.log") as address, open_browser() as browser:
                for server, seen in zip(servers, outcomes, strict=True):
                    seen.update(visit(name, address, browser, server, OUT))
        for server, seen in zip(servers, outcomes, strict=True):
            (OUT / f"{server.name}.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")


async def run_on(servers: Iterable[Server], areas: Iterable[str]) -> list[dict[str, Json]]:
    """Run the program on servers at the same time, and its areas too. Returns the outcomes on each server."""
    return await asyncio.gather(*(run(server, areas) for server in servers))


async def run(server: Server, areas: Iterable[str]) -> dict[str, Json]:
    """Run areas of the program on a server. Returns the outcomes by the names of calls."""
    [default] = await get_client(url=server.url).assistants.search()
    recorders = [Recorder(server, default["assistant_id"], area) for area in areas]
    async with asyncio.TaskGroup() as group:
        for recorder in recorders:
            group.create_task(AREAS[recorder.area](recorder))
    return {name: outcome for recorder in recorders for name, outcome in recorder.outcomes.items()}


def outcomes_of(name: str, areas: Iterable[str]) -> dict[str, Json]:
    """Read what a server said in the last run."""
    outcomes: dict[str, Json] = json.loads((OUT / f"{name}.json").read_text(encoding="utf-8"))
    return {call: outcome for call, outcome in outcomes.items() if call.partition(":")[0] in areas}


def show(call: str, theirs: Json, ours: Json) -> None:
    """Print the outcomes of a call side by side: LangGraph's to the left, and a mark between lines that differ."""
    left, right = (json.dumps(outcome, indent=1, ensure_ascii=False).splitlines() for outcome in (theirs, ours))
    half = (shutil.get_terminal_size((160, 0)).columns - 3) // 2
    print(f"\n{call}")
    for kind, start, end, other_start, other_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        mark = " " if kind == "equal" else "|"
        for line, other in zip_longest(left[start:end], right[other_start:other_end], fillvalue=""):
            print(f"{line[:half]:{half}} {mark} {other[:half]}".rstrip())


def judge(compared: Mapping[str, Sequence[str]], entries: Sequence[Entry], areas: Iterable[str]) -> int:
    """Print the differences that are not listed, and what is listed and not so. Returns the exit status."""
    new = unlisted(compared, entries)
    # Of what is about a call that was left out, or about any call where some were, it is not known whether it is so.
    whole = [entry for entry in entries if set(areas) >= entry.areas(AREAS)]
    old = [line for entry in whole for line in stale(entry, compared)]
    for call, lines in new.items():
        print(f"\n{call}")
        for line in dict.fromkeys(lines):
            print(f"    {line[:300]}")
    if old:
        print(f"\n{KNOWN.name} lists what is not so:")
        for line in old:
            print(f"    {line}")
    equal = sum(not lines for lines in compared.values())
    print(
        f"\n{len(compared)} calls, {equal} equal in all; {len(new)} differ otherwise than {KNOWN.name} says", flush=True
    )
    return int(bool(new or old))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
