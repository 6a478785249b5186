"""Sample conversations, written for chatledger and shipped with it: short, in several languages, with forks and edits."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from chatledger.domain.chat.interchange import ImportedChat

from ...exchange.readers import read_chats


@contextmanager
def sample_file() -> Generator[Path]:
    """The path of the samples, in the format of `chatledger export`; also when the package lies in an archive."""
    with as_file(files(__name__) / "conversations.jsonl") as path:
        yield path


def sample_chats() -> list[ImportedChat]:
    """The sample conversations."""
    problems: list[object] = []
    with sample_file() as path:
        chats = list(read_chats(path, format="chatledger", strict=True, on_problem=problems.append))
    assert not problems, problems
    return chats
