"""
The program that verifies bundles, which was written from the pages of the format: nothing of chatledger is imported by it.

Two programs that agree on what an event is, and on no others, are what a third party needs who trusts neither.
"""

import importlib.util
from pathlib import Path
from types import ModuleType


def _load() -> ModuleType:
    file = Path(__file__).parents[2] / "tools" / "verify_bundle.py"
    spec = importlib.util.spec_from_file_location("verify_bundle", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERIFIER = _load()


class NoEventError(Exception):
    """These bytes are no event."""


def hash_of_event(data: bytes) -> bytes:
    """Return the hash of an event. Raises `NoEventError`."""
    try:
        hash_: bytes = VERIFIER.event_hash(VERIFIER.parts_of(data, []))
    except (ValueError, IndexError, KeyError, RecursionError) as error:
        raise NoEventError from error
    return hash_
