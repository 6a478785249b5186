"""All decoders of foreign bytes that are fuzzed: by Hypothesis in the tests, by atheris with `python -m tests.fuzz.coverage`."""

import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.fuzz.fuzz_target import Bench, Maker, Target
from tests.fuzz.targets_backups import BACKUPS
from tests.fuzz.targets_events import EVENTS
from tests.fuzz.targets_files import FILES
from tests.fuzz.targets_imports import IMPORTS
from tests.fuzz.targets_index import INDEX
from tests.fuzz.targets_texts import TEXTS

TARGETS: Final[Mapping[str, Maker]] = {**EVENTS, **IMPORTS, **BACKUPS, **INDEX, **FILES, **TEXTS}


@contextmanager
def ready(name: str) -> Generator[Target]:
    """A target to work with."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield TARGETS[name](Bench(Path(folder), stack))
