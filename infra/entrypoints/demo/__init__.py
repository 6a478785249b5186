"""Sample conversations, short, in several languages, with forks and edits; and threads of agents, as LangGraph wrote them."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.versioned.interchange import ImportedValue

from ...exchange.readers import read_all, read_chats


@contextmanager
def sample_file() -> Generator[Path]:
    """The path of the samples, in the format of `chatledger export`; also when the package lies in an archive."""
    with as_file(files(__name__) / "conversations.jsonl") as path:
        yield path


def sample_chats() -> list[ImportedChat]:
    problems: list[object] = []
    with sample_file() as path:
        chats = list(read_chats(path, format="chatledger", strict=True, on_problem=problems.append))
    assert not problems, problems
    return chats


def sample_threads() -> list[ImportedValue]:
    """The sample threads of agents: one waits for an answer, one failed, and one is finished. They need no library to be read."""
    with as_file(files(__name__) / "threads.jsonl") as path:
        return [value for value in read_all(path, strict=True, on_problem=print) if isinstance(value, ImportedValue)]
