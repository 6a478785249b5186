"""Objects that a command line names, `module:name`: embeddings, and what else a server is given."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.search.embedding import Embedding


def object_named(named: str, wrong: str) -> Any:
    """Import `module:name`, also from the working directory; `wrong` says what it has to be where there is none."""
    module, _, name = named.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"{named!r} {wrong}: {error}"
        raise ConfigurationError(msg) from error


def embedding_named(named: str) -> Embedding:
    """Import an `Embedding`, or call a function without arguments that makes one."""
    embedding = object_named(named, "cannot be imported; name an Embedding, such as 'my_models:embedding'")
    if not isinstance(embedding, Embedding) and callable(embedding):
        embedding = embedding()
    if not isinstance(embedding, Embedding):
        msg = f"{named!r} is no chatledger.Embedding, nor a function that returns one"
        raise ConfigurationError(msg)
    return embedding
