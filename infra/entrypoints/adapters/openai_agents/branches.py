"""
Branches, turns and usage of a session, by the names that `AdvancedSQLiteSession` has; branches share their messages.

Items of a session: one item of the Responses API is one message, as it came.

Messages that something else wrote are told as items: one may stand for several, such as what was said and the calls that followed,
or for none. A turn is a message of the user and the items that follow it, up to the next; counted from 1, and 0 before the first.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from chatledger.domain.errors import BranchExistsError, BranchNotFoundError, InvalidValueError
from chatledger.domain.forms.items import ASSISTANT
from chatledger.domain.forms.plain import compact, object_at, plain_object
from chatledger.domain.forms.reading import role_of
from chatledger.domain.forms.responses import NAME as RESPONSES
from chatledger.domain.limits import json_copy
from chatledger.domain.values import MAIN, Annotation, NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import History, MessageHistory, Told
from ....ledger.ledger import Ledger
from ..access import NO_ID, AdapterLedger, utc

_PREVIEW: Final = 100
_SEARCH: Final = "tool_search"
_NAMED_BY_TYPE: Final = frozenset(
    {
        "apply_patch_call",
        "code_interpreter_call",
        "computer_call",
        "file_search_call",
        "shell_call",
        "web_search_call",
    }
)
_CALLS: Final = _NAMED_BY_TYPE | {
    "custom_tool_call",
    "function_call",
    "mcp_approval_request",
    "mcp_call",
    "tool_call",
    "tool_search_call",
}
_MCP: Final = ("mcp_call", "mcp_approval_request")


def draft_of(item: Any, chat_id: str) -> NewMessage:
    """Return the message to store for an item; an id of its own makes that of the message. Raises `InvalidValueError` for no JSON object."""
    fields = plain_object(item, "an item of a session")
    own = fields.get("id")
    has_own_id = isinstance(own, str) and own not in {"", NO_ID}
    return _message_of(fields, f"{chat_id}:{own if has_own_id else new_id()}")


def copies_of(items: Iterable[Any], unique_id: str) -> list[NewMessage]:
    """Return messages for items under new ids, which begin with `unique_id`, whatever the ids of the items are."""
    return [
        _message_of(plain_object(item, "an item of a session"), f"{unique_id}-{number}")
        for number, item in enumerate(items)
    ]


def _message_of(fields: dict[str, Any], message_id: str) -> NewMessage:
    # Whatever the SDK is given it keeps: what is no item is of the assistant.
    return NewMessage(role_of(RESPONSES, fields, ASSISTANT), fields, RESPONSES, id=message_id)


def cut(told: Sequence[Told], start: int, depth_of: Callable[[str], int]) -> tuple[str | None, list[Any]]:
    """
    Return where a branch is to end so that an item and those behind it are gone.

    Returns:
        The message that the branch ends with, and the items before the first to go that go with it: told of the same messages.
    """
    depths = [[depth_of(standing.base.id) for standing in item.origin] for item in told]
    first = min(min(of_item) for of_item in depths[start:])
    with_it: list[int] = []
    # What goes with an item may share an earlier message with yet another: until nothing more is touched.
    while True:
        with_it = [place for place in range(start) if max(depths[place]) >= first]
        earliest = min((min(depths[place]) for place in with_it), default=first)
        if earliest >= first:
            break
        first = earliest
    base = next(
        standing.base.parent_id
        for item, of_item in zip(told, depths, strict=True)
        for standing, depth in zip(item.origin, of_item, strict=True)
        if depth == first
    )
    return base, [told[place].value for place in with_it]


def numbered(items: Iterable[Told]) -> Iterator[tuple[int, Told]]:
    """Yield the items of a branch, each with the number of its turn."""
    turn = 0
    for item in items:
        turn += is_user(item.value)
        yield turn, item


def is_user(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "user"


def user_turns(items: Iterable[Told]) -> list[tuple[int, Told]]:
    """Return the messages of the user, each with the number of its turn."""
    return [(turn, item) for turn, item in numbered(items) if is_user(item.value)]


def described_turn(turn: int, item: Told, *, is_cut: bool = True) -> dict[str, Any]:
    """Return a turn as lists of turns have it: `turn`, `content`, `full_content`, `timestamp` (ISO 8601) and `can_branch`."""
    content = item.value.get("content", "")
    text = content if isinstance(content, str) else compact(content)
    return {
        "turn": turn,
        "content": text[:_PREVIEW] + "..." if is_cut and len(text) > _PREVIEW else text,
        "full_content": content,
        "timestamp": utc(item.origin[0].base.created_at).isoformat(timespec="milliseconds"),
        "can_branch": True,
    }


def has_text(item: Mapping[str, Any], sought: str) -> bool:
    """Whether a text stands in the content of an item, in small or capital letters."""
    content = item.get("content")
    texts: list[Any] = [content]
    if isinstance(content, list):
        blocks = cast("list[Any]", content)
        texts = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
    return any(isinstance(text, str) and sought.casefold() in text.casefold() for text in texts)


def kind_of_item(item: Mapping[str, Any]) -> str:
    """Return `user` or `assistant` for what they said, else the type of an item, or `other`."""
    role = item.get("role")
    return role if role in {"user", "assistant"} else str(item.get("type") or "other")


def tool_of(item: Mapping[str, Any]) -> str | None:
    """Return the tool that an item calls, or whose output it is: `name`, `namespace.name` or `server.name`; None for others."""
    kind, name = item.get("type"), item.get("name")
    server = item.get("server_label")
    if kind in _MCP and server:
        return f"{server}.{name}" if name else str(server)
    if kind in {f"{_SEARCH}_call", f"{_SEARCH}_output"}:
        return _SEARCH
    if kind in _NAMED_BY_TYPE:
        return str(kind)
    if name is None:
        return None
    space = item.get("namespace")
    return f"{space}.{name}" if space and space != name else str(name)


USAGE: Final = "usage"
"""The key of a turn's usage in the metadata of the annotation on its first message."""
_COUNTS: Final = ("requests", "input_tokens", "output_tokens", "total_tokens")
_FIRST_LOOK: Final = 8
"""So many items are read first when the newest turn is looked for."""
_DETAILS: Final = ("input_tokens_details", "output_tokens_details")


class SessionBranches:
    """The part of `LedgerSession` that is about branches, turns and usage."""

    session_id: str
    _ledger: AdapterLedger
    _branch: str | None

    @property
    def branch(self) -> str | None:
        """The branch that the session is bound to; None: the active branch of the chat, whichever that is."""
        return self._branch

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """
        Create a branch with what came before a message of the user, and go on there.

        Args:
            turn_number: The turn, counted from 1 on the current branch.
            branch_name: Its name; `branch_from_turn_<turn>_<seconds>` when None.

        Returns:
            The name of the branch.

        Raises:
            InvalidValueError: There is no such turn, or the name is blank or taken; a ValueError too.
        """
        if branch_name is not None and not branch_name.strip():
            msg = "Branch name cannot be empty"
            raise InvalidValueError(msg)
        branch = self._branch

        def create(ledger: Ledger) -> str:
            turns = dict(user_turns(self._items(ledger, branch)))
            if turn_number not in turns:
                msg = f"Turn {turn_number} does not contain a user message in session {self.session_id!r}"
                raise InvalidValueError(msg)
            base = turns[turn_number].origin[0].base.parent_id
            if branch_name is not None:
                return self._created(ledger, branch_name, base)
            name = first = f"branch_from_turn_{turn_number}_{int(time.time())}"
            number = 1
            while ledger.get_branch(self.session_id, name) is not None:
                number += 1
                name = f"{first}_{number}"
            return self._created(ledger, name, base)

        return self._follow(await self._ledger.run(create))

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """
        Create a branch with what came before the first message of the user that has a text, and go on there.

        Raises:
            InvalidValueError: There is no such message, or the name is blank or taken; a ValueError too.
        """
        turns = await self.find_turns_by_content(search_term)
        if not turns:
            msg = f"No user turns found containing '{search_term}'"
            raise InvalidValueError(msg)
        return await self.create_branch_from_turn(turns[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """
        Go on with another branch: it becomes the active one of the chat, or that which this session is bound to.

        Raises:
            InvalidValueError: There is no such branch; a ValueError too.
        """
        is_bound = self._branch is not None

        def switch(ledger: Ledger) -> None:
            if ledger.get_branch(self.session_id, branch_id) is None:
                raise _no_branch(branch_id)
            if not is_bound:
                ledger.set_active_branch(self.session_id, branch_id)

        await self._ledger.run(switch)
        self._follow(branch_id)

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is called
        """
        Delete a branch. Its messages stay in the history; `LedgerSession.delete` erases a whole session.

        Args:
            branch_id: Its name.
            force: Whether the current branch may be deleted; the session goes on with `main` then.

        Raises:
            InvalidValueError: There is no such branch, it is `main`, or the current one; a ValueError too.
        """
        if not branch_id.strip():
            msg = "Branch ID cannot be empty"
            raise InvalidValueError(msg)
        if branch_id == MAIN:
            msg = "Cannot delete the 'main' branch"
            raise InvalidValueError(msg)
        bound = self._branch

        def delete(ledger: Ledger) -> None:
            branch = ledger.get_branch(self.session_id, branch_id)
            if branch is None:
                raise _no_branch(branch_id)
            is_current = branch.is_active if bound is None else branch_id == bound
            if is_current and not force:
                msg = f"Cannot delete current branch '{branch_id}'. Use force=True or switch branches first"
                raise InvalidValueError(msg)
            # As the SDK's own session; a deleted branch else gives way to the one seen last before it.
            if branch.is_active and ledger.get_branch(self.session_id, MAIN) is not None:
                ledger.set_active_branch(self.session_id, MAIN)
            ledger.delete_branch(self.session_id, branch_id)

        await self._ledger.run(delete)
        if branch_id == bound:
            self._follow(MAIN)

    async def list_branches(self) -> list[dict[str, Any]]:
        """
        Return the branches by `created_at`: `branch_id`, `message_count`, `user_turns`, `is_current`, `created_at` (ISO 8601).

        None when nothing was added to the session yet. Costs O(branches); no branch is read.
        """
        bound = self._branch

        def listed(history: MessageHistory) -> list[dict[str, Any]]:
            return [
                {
                    "branch_id": branch.name,
                    "message_count": branch.message_count,
                    "user_turns": turns,
                    "is_current": branch.is_active if bound is None else branch.name == bound,
                    "created_at": utc(branch.created_at).isoformat(timespec="milliseconds"),
                }
                for branch, turns in history.branches()
            ]

        return await self._ledger.ask(self.session_id, listed)

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """
        Return the messages of the user on a branch, the current one when None: where one can branch.

        Each has `turn`, `content` (100 characters), `full_content`, `timestamp` (ISO 8601) and `can_branch`. Costs O(branch).
        """
        items = await self._read(branch_id)
        return [described_turn(turn, item) for turn, item in user_turns(items)]

    async def find_turns_by_content(self, search_term: str, branch_id: str | None = None) -> list[dict[str, Any]]:
        """
        Return the messages of the user that have a text, in small or capital letters, as `get_conversation_turns` does.

        For words of any message, ranked, see `LedgerSession.search`. Costs O(branch).
        """
        items = await self._read(branch_id)
        matching = [(turn, item) for turn, item in user_turns(items) if has_text(item.value, search_term)]
        return [described_turn(turn, item, is_cut=False) for turn, item in matching]

    async def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[dict[str, str | None]]]:
        """Return the `type` and `tool_name` of each item of a branch by its turn. Costs O(branch)."""
        by_turn: dict[int, list[dict[str, str | None]]] = {}
        for turn, item in numbered(await self._read(branch_id)):
            by_turn.setdefault(turn, []).append({"type": kind_of_item(item.value), "tool_name": tool_of(item.value)})
        return by_turn

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return (tool, number of calls, turn) for each tool of each turn of a branch. Costs O(branch)."""
        # An output of a search counts where its call is not there.
        items = await self._read(branch_id)
        calls: Counter[tuple[int, str]] = Counter()
        outputs: Counter[tuple[int, str]] = Counter()
        for turn, item in numbered(items):
            kind, tool = item.value.get("type"), tool_of(item.value)
            if tool is not None and (kind in _CALLS or kind == f"{_SEARCH}_output"):
                (calls if kind in _CALLS else outputs)[turn, tool] += 1
        for called, number in outputs.items():
            calls[called] = calls[called] or number
        return [(tool, number, turn) for (turn, tool), number in sorted(calls.items())]

    async def store_run_usage(self, result: Any) -> None:
        """
        Keep the tokens that a run used with the turn that it answered: in an annotation on the message of the user.

        Args:
            result: The result of `Runner.run`.

        Where a branch has no turn nothing is written. Branches that share the turn share its usage.
        """
        usage = getattr(getattr(result, "context_wrapper", None), "usage", None)
        if usage is None:
            return
        counts: dict[str, Any] = {name: getattr(usage, name, 0) or 0 for name in _COUNTS}
        for name in _DETAILS:
            details: Any = getattr(usage, name, None)
            counts[name] = details.model_dump(mode="json") if hasattr(details, "model_dump") else None
        counted, branch = json_copy(counts, "usage"), self._branch

        def store(ledger: Ledger) -> None:
            message_id = self._history(ledger, branch).read(_newest_turn)
            if message_id is not None:
                ledger.annotate(self.session_id, message_id, metadata={USAGE: counted})

        await self._ledger.run(store)

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """
        Return the sums of `requests`, `input_tokens`, `output_tokens` and `total_tokens`, and `total_turns`.

        Of all turns of the session, or of those of a branch; None when no usage was stored.
        """

        def read(ledger: Ledger) -> dict[str, int] | None:
            if branch_id is None:
                annotations = ledger.get_annotations(self.session_id).values()
                usages = [usage for usage in map(_usage_of, annotations) if usage]
            else:
                usages = [usage for _, usage in self._usages(ledger, branch_id)]
            if not usages:
                return None
            sums = {name: sum(usage.get(name) or 0 for usage in usages) for name in _COUNTS}
            return {**sums, "total_turns": len(usages)}

        return await self._ledger.run(read)

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """
        Return the usage of a turn, empty when none was stored; without a turn a list, each with its `user_turn_number`.

        Beside the four counts there are `input_tokens_details` and `output_tokens_details`, objects or None.
        """
        branch = self._branch if branch_id is None else branch_id
        usages = await self._ledger.run(lambda ledger: self._usages(ledger, branch))
        if user_turn_number is not None:
            return dict(usages).get(user_turn_number, {})
        return [{"user_turn_number": turn, **usage} for turn, usage in usages]

    async def _read(self, branch_id: str | None) -> list[Told]:
        branch = self._branch if branch_id is None else branch_id
        return await self._ledger.run(lambda ledger: self._items(ledger, branch))

    def _items(self, ledger: Ledger, branch: str | None) -> list[Told]:
        try:
            return self._history(ledger, branch).read(lambda history: history.told(RESPONSES)) or []
        except BranchNotFoundError as error:
            raise _no_branch(error.branch) from error

    def _usages(self, ledger: Ledger, branch: str | None) -> list[tuple[int, dict[str, Any]]]:
        turns = user_turns(self._items(ledger, branch))
        return [(turn, usage) for turn, item in turns if (usage := _usage_of(item.origin[0].message.annotation))]

    def _history(self, ledger: Ledger, branch: str | None) -> MessageHistory:
        return MessageHistory(ledger, self.session_id, branch=branch)

    def _created(self, ledger: Ledger, name: str, head: str | None) -> str:
        try:
            ledger.create_branch(self.session_id, name, head, activate=self._branch is None)
        except BranchExistsError as error:
            msg = f"Branch ID '{name}' has already been used. Choose a new branch ID."
            raise InvalidValueError(msg) from error
        return name

    def _follow(self, branch: str) -> str:
        """Go on with a branch, if the session is bound to one."""
        if self._branch is not None:
            self._branch = branch
        return branch


def _newest_turn(history: History) -> str | None:
    """The newest message of the user on a branch; costs O(turn)."""
    limit = _FIRST_LOOK
    while True:
        told = history.told(RESPONSES, limit)
        turns = user_turns(told)
        if turns or len(told) < limit:
            return turns[-1][1].origin[0].message.id if turns else None
        limit *= 2


def _no_branch(name: str) -> InvalidValueError:
    return InvalidValueError(f"Branch '{name}' does not exist; list_branches() shows those that do")


def _usage_of(annotation: Annotation | None) -> dict[str, Any]:
    counts: Any = None if annotation is None else annotation.metadata.get(USAGE)
    usage = object_at(counts)
    return dict(usage) if _COUNTS[0] in usage else {}
