"""Every decoder of foreign bytes reads its samples, and meets garbage with a documented error; without atheris."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.coverage import Outcome, main, table
from tests.fuzz.fuzz_inputs import WILD, any_edits, any_text, edited, odd_msgpack
from tests.fuzz.fuzz_target import Maker, Target
from tests.fuzz.fuzz_targets import TARGETS, ready
from tests.support.soak import examples

SLOW = {"index-row", "import-saver", "import-saver-checkpoint", "import-saver-row"}
"""Each input takes milliseconds."""


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with ExitStack() as stack:
        yield stack.enter_context(ready(request.param))


def test_the_samples_are_read(target: Target) -> None:
    """Without an error: else everything below would say little."""
    assert target.seeds
    for seed in target.seeds[:: max(len(target.seeds) // 12, 1)]:
        target.read(seed)


def _is_slow(request: Any) -> bool:
    return cast("str", request.node.callspec.params["target"]) in SLOW


@pytest.mark.matrix
def test_garbage(target: Target, request: pytest.FixtureRequest) -> None:
    is_slow = _is_slow(request)
    for raw in WILD[:: 5 if is_slow else 1]:
        target.check(raw)
        target.check(target.seeds[0][:3] + raw)


@pytest.mark.matrix
def test_what_is_nearly_a_sample(target: Target, request: pytest.FixtureRequest) -> None:
    seeds, at = target.seeds, target.msgpack_at
    numbers = st.integers(0, len(seeds) - 1)  # the bytes themselves are too many to be shown
    inputs = numbers.flatmap(lambda number: any_edits.map(lambda edits: edited(seeds[number], edits)))
    inputs |= any_text.map(lambda text: text.encode("utf-8", "surrogatepass"))
    if at is not None:

        def odd(number: int) -> st.SearchStrategy[bytes]:
            return odd_msgpack([seeds[number][at:]]).map(lambda raw: seeds[number][:at] + raw)

        inputs |= numbers.flatmap(odd)
    is_slow = _is_slow(request)

    @given(raw=inputs)
    @settings(max_examples=examples(15 if is_slow else 60), deadline=None)
    def check(raw: bytes) -> None:
        target.check(raw)

    check()


def test_the_command_knows_its_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(TARGETS)
    with pytest.raises(SystemExit):
        main(["no-such-target"])


def test_an_input_is_reproduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a decoder refuses as documented passes; any other error of it comes out."""
    file = tmp_path / "input"
    file.write_bytes(b"\xff")
    assert main(["--reproduce", str(file), "bookmark"]) == 0

    def fault(_: bytes) -> None:
        raise IndexError

    monkeypatch.setitem(cast("dict[str, Maker]", TARGETS), "bookmark", lambda _: Target([], fault))
    with pytest.raises(IndexError):
        main(["--reproduce", str(file), "bookmark"])


def test_the_table_of_a_run() -> None:
    said = table([Outcome("one", 1200, 30, 40, []), Outcome("two", 1, 2, 3, [Path("input")])])
    assert "| one | 1,200 | 30 | 40 | 0 |\n| two | 1 | 2 | 3 | 1 |\n| all | 1,201 | | | 1 |" in said
