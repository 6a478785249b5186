"""
Foreign files that are imported: the ledger stays as it was after an error.

`test_fuzz_targets` reads such files with other bytes, archives and databases among them, and
`tests/infra/exchange/test_importers_damage.py` changes the values in their texts.
"""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import DEEP, nearly, odd_msgpack, only_ours
from tests.fuzz.targets_imports import CHECKPOINT, read_file, samples, saver_file
from tests.support.soak import examples

import chatledger
from chatledger import InvalidValueError
from chatledger.infra.exchange.langgraph_savers import import_saver_file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "some.file"


@pytest.mark.parametrize("name", ["chatgpt", "oasst", "chatledger"])
def test_what_is_read_is_imported_or_refused_as_a_whole(name: str, file: Path) -> None:
    @given(raw=nearly([samples()[name]]))
    @settings(max_examples=examples(15), deadline=None)
    def check(raw: bytes) -> None:
        file.write_bytes(raw)
        with chatledger.open("memory:") as ledger:
            for chat in only_ours(lambda: read_file(file, name)) or []:
                before = ledger.last_position()
                if only_ours(partial(ledger.import_chat, chat)) is None:
                    assert ledger.last_position() == before
            assert ledger.verify().position == ledger.last_position()

    check()


# Files of LangGraph's SqliteSaver


@given(
    checkpoint=st.just(CHECKPOINT) | nearly([CHECKPOINT]) | odd_msgpack([CHECKPOINT]),
    metadata=st.just(b"{}") | nearly([b'{"run_id": "r", "step": 1}']) | st.sampled_from([None, 7, "text", b"[]"]),
    write=nearly([CHECKPOINT]) | odd_msgpack([CHECKPOINT]) | st.sampled_from([None, 7, "text", 1.5]),
    ids=st.just(("t", "", "1"))
    | st.tuples(*(st.sampled_from(["t", "", None, 7, b"\xff", "x" * 3000, "\0", 1.5]),) * 3),
)
@settings(max_examples=examples(40), deadline=None)
def test_rows_of_a_saver(checkpoint: bytes, metadata: Any, write: Any, ids: tuple[Any, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder, chatledger.open("memory:") as ledger:
        path = Path(folder) / "saver.db"
        saver_file(path, checkpoint, metadata, write, ids)
        only_ours(lambda: import_saver_file(ledger, path))
        assert ledger.verify().position == ledger.last_position()


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"], ids=["lists", "objects"])
def test_deep_values_of_a_saver_are_refused(opening: bytes, file: Path) -> None:
    deep = opening * DEEP + b"\xc0"
    with chatledger.open("memory:") as ledger:
        saver_file(file, CHECKPOINT, b"{}", deep)
        with pytest.raises(InvalidValueError, match="cannot be read"):
            import_saver_file(ledger, file)
        saver_file(file, CHECKPOINT, b"[" * DEEP, deep)
        with pytest.raises(InvalidValueError, match="cannot be read"):
            import_saver_file(ledger, file)
