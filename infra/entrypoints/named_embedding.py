"""Embeddings that a command line names: `module:name` of an `Embedding`, or of a function without arguments that makes one."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.search.embedding import Embedding


def embedding_named(named: str) -> Embedding:
    """
    Import an embedding; modules are looked for in the working directory too.

    Raises:
        ConfigurationError: There is none of that name.
    """
    module, _, name = named.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"{named!r} cannot be imported; name an Embedding, such as 'my_models:embedding': {error}"
        raise ConfigurationError(msg) from error
    if not isinstance(found, Embedding) and callable(found):
        found = found()
    if not isinstance(found, Embedding):
        msg = f"{named!r} is no chatledger.Embedding, nor a function that returns one"
        raise ConfigurationError(msg)
    return found
