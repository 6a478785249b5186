import copy
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chatledger.domain import errors
from chatledger.domain.errors import (
    BranchExistsError,
    BranchNotFoundError,
    ChainIntegrityError,
    ChatExistsError,
    ChatledgerError,
    ChatNotFoundError,
    CheckpointConflictError,
    CheckpointExistsError,
    CheckpointNotFoundError,
    ContextTooLargeError,
    EmbeddingError,
    EmptyChatError,
    HeadConflictError,
    HeldError,
    IndexFullError,
    LastBranchError,
    LiveConflictError,
    LiveLimitError,
    LiveStreamNotFoundError,
    LogRegressedError,
    MergeConflictError,
    MessageConflictError,
    MessageNotFoundError,
    MissingCodecError,
    ModelNotFoundError,
    OtherShareError,
    OwnerMismatchError,
    ParentNotFoundError,
    PayloadTooLargeError,
    PlanOutdatedError,
    ProjectionError,
    RegenerationNotFoundError,
    ResolverError,
    ResourceError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    RuntimeMismatchError,
    SelfParentError,
    StateConflictError,
    TranslationError,
    UnknownLazyTypeError,
    UpdateConflictError,
    WrongChatError,
)
from chatledger.domain.legal_hold import LegalHold

CLASSES: dict[str, type[ChatledgerError]] = {
    name: found for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, ChatledgerError)
}

WITH_FACTS: list[ChatledgerError] = [
    SelfParentError("m1"),
    PayloadTooLargeError("c", size_bytes=5, limit_bytes=3),
    ContextTooLargeError("max_tokens", size=5, limit=3, system_tokens=1),
    ChatNotFoundError("c"),
    MessageNotFoundError("m1"),
    MessageNotFoundError("m1", chat_id="c"),
    ParentNotFoundError("m2", parent_id="m1", chat_id="c"),
    BranchNotFoundError("c", "idea"),
    HeldError("chat 'c'", LegalHold(kind="chat", id="c", held_at=7)),
    LastBranchError("c", "main"),
    CheckpointNotFoundError("c", "cp"),
    RunNotFoundError("c", "r1"),
    RegenerationNotFoundError("c", "g1"),
    LiveStreamNotFoundError("c", "s1"),
    LiveLimitError("c", "s1", what="has 5 chunks"),
    LiveConflictError("c", "s1", status="committed"),
    RunConflictError("c", "r1", why="is recorded with another runtime; use a new run id"),
    RunStatusError("c", "r1", status="completed", wanted="running"),
    PlanOutdatedError("c", "m1"),
    WrongChatError("m1", chat_id="c"),
    ChatExistsError("c"),
    BranchExistsError("c", "idea"),
    MessageConflictError("m1", chat_id="c"),
    MessageConflictError("m1", chat_id="c", other_chat=True),
    EmptyChatError("c", "idea"),
    HeadConflictError("c", "idea", expected=None, actual="m1"),
    MergeConflictError("plan", base=None, ours=["a"], theirs=["b"]),
    UpdateConflictError("c", attempts=5),
    CheckpointConflictError("t", "assistant:a", parent_id="1", latest_id="2"),
    CheckpointExistsError("t", "assistant:a", "1"),
    StateConflictError("chat:[REDACTED]:c", expected=1, actual=2),
    RuntimeMismatchError("t", "1", found="ts", expected="python"),
    OtherShareError("chat 'c'", (1, 3)),
    OwnerMismatchError("c"),
    ChainIntegrityError("a hole", chat_id="c", position=7),
    LogRegressedError(last_position=3, seen_position=5),
    MissingCodecError("user", fragment_id="m1"),
    UnknownLazyTypeError("first-user"),
    ModelNotFoundError("model-1"),
    ResolverError("database.tables[2]", "failed"),
    TranslationError("openai", "m1", "reasoning", "signed by google"),
    ResourceError("no descriptors"),
    IndexFullError("/index", "as the disk is full", position=7),
    ProjectionError("words", "failed", position=7),
    EmbeddingError("all-MiniLM", "failed with TimeoutError"),
]


def samples() -> Iterator[ChatledgerError]:
    yield from WITH_FACTS
    told = {type(error) for error in WITH_FACTS}
    for found in CLASSES.values():
        if found not in told:
            yield found("what happened, and what to do")


WAYS: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]


@pytest.mark.parametrize("again", WAYS, ids=["copy", "deepcopy", "pickle"])
def test_errors_survive_copying(again: Callable[[Any], Any]) -> None:
    """Class, message and facts come back, so errors cross processes."""
    for error in samples():
        copied = again(error)

        assert type(error) is type(copied)
        assert str(error) == str(copied)
        assert error.args == copied.args
        assert vars(error) == vars(copied)
        assert str(error)


@pytest.mark.parametrize("error", WITH_FACTS, ids=lambda error: type(error).__name__)
def test_no_message_names_a_method(error: ChatledgerError) -> None:
    """Errors are read in Python, over HTTP, by models that have tools, and on the command line, whose words are others."""
    assert set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", str(error))) <= {
        "awaiting_approval",
        "last_assistant_message",
        "max_tokens",
    }


def test_the_page_draws_the_tree_as_it_is() -> None:
    """The reference shows every class below its base class, and which errors of Python it is besides."""
    page = (Path(__file__).parents[2] / "docs/reference/errors.md").read_text()
    drawn: dict[str, str | None] = {}
    above: list[str] = []
    for indent, name in re.findall(r"^([ │]*(?:[├└]─ )?)(\w+Error) {2}", page, re.MULTILINE):
        level = len(indent) // 3
        del above[level:]
        drawn[name] = above[-1] if above else None
        above.append(name)

    assert {name: kind.__base__.__name__ for name, kind in CLASSES.items() if kind.__base__} | {
        "ChatledgerError": None
    } == drawn
    also = dict(re.findall(r"(\w+Error) .*\(also (\w+)\)$", page, re.MULTILINE))
    assert {"InvalidValueError": "ValueError", "NotFoundError": "LookupError"} == also
    assert issubclass(errors.InvalidValueError, ValueError)
    assert issubclass(errors.NotFoundError, LookupError)


def test_every_error_has_one_root() -> None:
    """One `except ChatledgerError` catches all, and each class says what may be concluded."""
    for found in CLASSES.values():
        assert issubclass(found, ChatledgerError)
        assert (found.__doc__ or "").strip(), found


def test_no_other_exception_is_raised_on_purpose() -> None:
    """What the package exports are the classes of the tree, and nothing else."""
    assert sorted(CLASSES) == sorted(errors.__all__)
