"""Answers of reads for ids that nothing has: one rule, see "Unknown ids" in docs/reference/limits.md."""

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, cast

import anyio
import pytest
from tests.support.cases import case

import chatledger
from chatledger import Graph, HitCounts, Ledger, SearchHits, Versions, user
from chatledger.errors import BranchNotFoundError, ChatNotFoundError, InvalidValueError, MessageNotFoundError

ABSENT = ("nope", "", "x" * 2049, "a\0b", "\ud800")
"""An id that is unknown, and some that can be nobody's."""

Read = Callable[[Any, str], Any]


def _listed(answer: Any) -> Any:
    return list(cast("Iterator[Any]", answer)) if isinstance(answer, Iterator) else answer


def _no_graph(chat_id: str) -> Graph:
    return Graph(chat_id=chat_id, nodes=[], branches=[], checkpoints=[])


ANSWERS: dict[str, tuple[Read, Any]] = {
    "get_chat": (lambda ledger, absent: ledger.get_chat(absent), None),
    "owner_of": (lambda ledger, absent: ledger.owner_of(absent), None),
    "list_chats": (lambda ledger, absent: ledger.list_chats(user_id=absent), []),
    "count_chats": (lambda ledger, absent: ledger.count_chats(user_id=absent), 0),
    "get_message": (lambda ledger, absent: ledger.get_message(absent), None),
    "get_chain": (lambda ledger, absent: ledger.get_chain(absent), []),
    "has_children": (lambda ledger, absent: ledger.has_children(absent), False),
    "children": (lambda ledger, absent: ledger.children(absent), []),
    "siblings": (lambda ledger, absent: ledger.siblings(absent), []),
    "versions": (lambda ledger, absent: ledger.versions(absent), Versions(ids=[], index=None)),
    "branches_of": (lambda ledger, absent: ledger.branches_of(absent), []),
    "get_branch": (lambda ledger, absent: ledger.get_branch(absent, "main"), None),
    "get_branch, its id": (lambda ledger, absent: ledger.get_branch("trip", id=absent), None),
    "get_branch, its name": (lambda ledger, absent: ledger.get_branch("trip", absent), None),
    "get_active_branch": (lambda ledger, absent: ledger.get_active_branch(absent), None),
    "list_branches": (lambda ledger, absent: ledger.list_branches(absent), []),
    "get_checkpoint": (lambda ledger, absent: ledger.get_checkpoint(absent, "cp"), None),
    "get_checkpoint, its name": (lambda ledger, absent: ledger.get_checkpoint("trip", absent), None),
    "list_checkpoints": (lambda ledger, absent: ledger.list_checkpoints(absent), []),
    "members": (lambda ledger, absent: ledger.members(absent), []),
    "get_annotations": (lambda ledger, absent: ledger.get_annotations(absent), {}),
    "get_row_numbers, of messages": (lambda ledger, absent: ledger.get_row_numbers("trip", [absent]), {}),
    "get_run": (lambda ledger, absent: ledger.get_run(absent, "run"), None),
    "get_run, its id": (lambda ledger, absent: ledger.get_run("trip", absent), None),
    "runs": (lambda ledger, absent: ledger.runs(absent), []),
    "runs, of a thread": (lambda ledger, absent: ledger.runs("trip", thread_id=absent), []),
    "runs, of an assistant": (lambda ledger, absent: ledger.runs("trip", assistant_id=absent), []),
    "runs, of a trigger": (lambda ledger, absent: ledger.runs("trip", trigger_message_id=absent), []),
    "runs, of an answer": (lambda ledger, absent: ledger.runs("trip", message_id=absent), []),
    "get_regeneration": (lambda ledger, absent: ledger.get_regeneration(absent, "again"), None),
    "get_regeneration, its id": (lambda ledger, absent: ledger.get_regeneration("trip", absent), None),
    "regenerations": (lambda ledger, absent: ledger.regenerations(absent), []),
    "forks": (lambda ledger, absent: ledger.forks(absent), []),
    "forks, of a message": (lambda ledger, absent: ledger.forks("trip", message_id=absent), []),
    "search": (lambda ledger, absent: ledger.search("hello", chat_id=absent), SearchHits()),
    "search, on a branch": (lambda ledger, absent: ledger.search("hello", chat_id=absent, branch="main"), SearchHits()),
    "search, of an owner": (lambda ledger, absent: ledger.search("hello", user_id=absent), SearchHits()),
    "search, in a thread": (lambda ledger, absent: ledger.search("hello", thread_id=absent), SearchHits()),
    "count_hits": (lambda ledger, absent: ledger.count_hits("hello", user_id=absent), HitCounts()),
    "search, by a name": (lambda ledger, absent: ledger.search("hello", roles=[absent]), SearchHits()),
    "graph": (
        lambda ledger, absent: ledger.graph(absent),
        _no_graph,
    ),
    "history": (lambda ledger, absent: ledger.history(absent), []),
    "history, of an owner": (lambda ledger, absent: ledger.history(user_id=absent), []),
    "history, of an actor": (lambda ledger, absent: ledger.history(actor=absent), []),
}

ERRORS: dict[str, tuple[Read, type[Exception]]] = {
    "get_messages": (lambda ledger, absent: ledger.get_messages(absent), ChatNotFoundError),
    "get_messages, of a branch": (
        lambda ledger, absent: ledger.get_messages("trip", branch=absent),
        BranchNotFoundError,
    ),
    "get_messages, before": (lambda ledger, absent: ledger.get_messages("trip", before=absent), MessageNotFoundError),
    "get_chain, before": (lambda ledger, absent: ledger.get_chain("m1", before=absent), MessageNotFoundError),
    "compare": (lambda ledger, absent: ledger.compare("trip", [absent]), BranchNotFoundError),
    "compare, of a chat": (lambda ledger, absent: ledger.compare(absent, ["main"]), ChatNotFoundError),
    "bisect": (lambda ledger, absent: ledger.bisect(absent, bool), ChatNotFoundError),
    "bisect, of a branch": (lambda ledger, absent: ledger.bisect("trip", bool, branch=absent), BranchNotFoundError),
    "list_chats, after": (lambda ledger, absent: ledger.list_chats(after=absent), ChatNotFoundError),
    "search, on a branch of a chat": (
        lambda ledger, absent: ledger.search("hello", chat_id="trip", branch=absent),
        BranchNotFoundError,
    ),
    "get_page": (lambda ledger, absent: ledger.get_page(absent), ChatNotFoundError),
    "get_page, of a branch": (lambda ledger, absent: ledger.get_page("trip", branch=absent), BranchNotFoundError),
    "get_page, before": (lambda ledger, absent: ledger.get_page("trip", before=absent), MessageNotFoundError),
    "get_rows": (lambda ledger, absent: ledger.get_rows(absent), ChatNotFoundError),
    "get_rows, around": (lambda ledger, absent: ledger.get_rows("trip", around=absent), MessageNotFoundError),
    "get_rows, along": (lambda ledger, absent: ledger.get_rows("trip", along=absent), BranchNotFoundError),
    "list_bundled_lines": (lambda ledger, absent: ledger.list_bundled_lines(absent, 0), ChatNotFoundError),
    "list_branch_points": (lambda ledger, absent: ledger.list_branch_points(absent), ChatNotFoundError),
    "get_row_numbers": (lambda ledger, absent: ledger.get_row_numbers(absent, ["m1"]), ChatNotFoundError),
    "get_row_strip": (lambda ledger, absent: ledger.get_row_strip(absent), ChatNotFoundError),
    "get_row_line": (lambda ledger, absent: ledger.get_row_line(absent, "m1"), ChatNotFoundError),
    "get_row_line, of a message": (lambda ledger, absent: ledger.get_row_line("trip", absent), MessageNotFoundError),
    "get_context": (lambda ledger, absent: ledger.get_context(absent, "m1"), ChatNotFoundError),
    "get_context, up to": (lambda ledger, absent: ledger.get_context("trip", absent), MessageNotFoundError),
    "plan_regeneration": (lambda ledger, absent: ledger.plan_regeneration(absent, "m1"), ChatNotFoundError),
    "plan_regeneration, after": (lambda ledger, absent: ledger.plan_regeneration("trip", absent), MessageNotFoundError),
    "common_ancestor": (lambda ledger, absent: ledger.common_ancestor("m1", absent), MessageNotFoundError),
    "merge_base": (lambda ledger, absent: ledger.merge_base("m1", absent), MessageNotFoundError),
    "diff": (lambda ledger, absent: ledger.diff(absent, "m1"), MessageNotFoundError),
    "export_chat": (lambda ledger, absent: ledger.export_chat(absent), ChatNotFoundError),
}
_NO_QUESTION = {"close", "get_position", "position"}


class _Awaiting:
    """An `AsyncLedger`, or a view of one, whose methods are called without `await`."""

    def __init__(self, ledger: Any, portal: Any) -> None:
        self._ledger, self._portal = ledger, portal

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            answer = getattr(self._ledger, name)(*args, **options)
            return [one async for one in answer] if hasattr(answer, "__anext__") else await answer

        return lambda *args, **options: self._portal.call(lambda: call(*args, **options))


@pytest.fixture(scope="module", params=["ledger", "for_user", "as_of", "as_of earlier", "as_of for_user"])
def readers(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    """One kind of ledger: blocking, and its asynchronous twin."""
    kind = str(request.param)
    with chatledger.open("memory:") as ledger, anyio.from_thread.start_blocking_portal() as portal:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("hello", id="m1")])
        position = ledger.position
        ledger.append("trip", [user("hello again", id="m2")])
        blocking = ledger.for_user("ada") if "for_user" in kind else ledger
        awaiting = chatledger.AsyncLedger(lambda: _another(ledger), "memory:")
        limited = awaiting.for_user("ada") if "for_user" in kind else awaiting
        if "as_of" not in kind:
            yield [blocking, _Awaiting(limited, portal)]
            return
        at = position if "earlier" in kind else ledger.position
        with blocking.as_of(at) as view:
            async_view = portal.call(lambda: _entered(limited, at))
            yield [view, _Awaiting(async_view, portal)]
            portal.call(async_view.close)


def _another(ledger: Ledger) -> Ledger:
    return ledger


async def _entered(ledger: chatledger.AsyncLedger, at: int) -> Any:
    return await ledger.as_of(at)


def test_a_read_of_what_is_not_there_answers_nothing(readers: list[Any]) -> None:
    """One thing is None, several are empty, also for ids that cannot be."""
    for (question, (read, answer)), absent, reader in product(ANSWERS.items(), ABSENT, readers):
        with case(question, absent, reader):
            assert _listed(read(reader, absent)) == (answer(absent) if callable(answer) else answer)


def test_a_read_that_would_mislead_raises(readers: list[Any]) -> None:
    """An id that cannot be is as unknown as any other."""
    for (question, (read, error)), absent, reader in product(ERRORS.items(), ABSENT, readers):
        with case(question, absent, reader):
            with pytest.raises(error) as caught:
                read(reader, absent)
            assert type(caught.value) is error


def test_every_reading_method_is_in_the_tables() -> None:
    """A view has all reading methods, and no others."""
    asked = {name.partition(",")[0] for name in (*ANSWERS, *ERRORS)}
    there = {name for name, _ in inspect.getmembers(chatledger.LedgerView) if not name.startswith("_")}
    assert there - _NO_QUESTION == asked


def test_what_is_no_text_is_refused() -> None:
    """A mistake of the program, not an id from outside."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("hello", id="m1")])
        for question, (read, _) in {**ANSWERS, **ERRORS}.items():
            with case(question), pytest.raises(InvalidValueError):
                _listed(read(ledger, b"trip"))  # type: ignore[arg-type]
