"""Reading the files of other programs."""

from pathlib import Path

from chatledger.importers import ImportedChat, Problem, read_chats, validate_chat


def read(path: Path, *, strict: bool = False) -> tuple[list[ImportedChat], list[Problem]]:
    """The chats in a file, each of them valid, and what was reported."""
    problems: list[Problem] = []
    chats = list(read_chats(path, strict=strict, on_problem=problems.append))
    for chat in chats:
        validate_chat(chat)
    return chats, problems
