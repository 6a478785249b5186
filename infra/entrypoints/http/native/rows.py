"""Rows: a chat drawn as a git graph, a window at a time."""

from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.draw.rows import BranchPointChild, BranchPointPage, RowLine, RowStrip, RowWindow
from chatledger.domain.errors import BranchNotFoundError, ChatNotFoundError, MessageNotFoundError

from ..routing import HttpCall, Limit, Route

Row = Annotated[int, msgspec.Meta(ge=0, le=2**32, description="A row, counted from 0.")]
Above = Annotated[int, msgspec.Meta(ge=-1, le=2**32, description="A row; -1 is above the first.")]
Height = Annotated[int, msgspec.Meta(ge=1, le=10_000, description="The number of pixels.")]
Along = Annotated[
    str | None, msgspec.Meta(description="A branch, or a message: the path to it is read, and has lane 0.")
]
Wanted = Annotated[list[str], msgspec.Meta(min_length=1, max_length=200, description="Ids of messages.")]


class FoundRows(msgspec.Struct):
    """Rows by message id, without those of messages that the chat does not have."""

    rows: dict[str, int]


def get_rows(
    call: HttpCall,
    chat_id: str,
    *,
    first: Row = 0,
    rows: Limit = 200,
    around: str | None = None,
    along: Along = None,
    only: Literal["path"] | None = None,
) -> RowWindow:
    """
    Read a window of a chat drawn as a git graph: one message a row in log order, oldest first, each branch in a lane.

    It begins at row `first`, or has the message `around` in its middle. A message stays in its row; lanes are those of the
    `version` of the chat, and of what is read: `along`, else the active branch. With `only=path` the rows are that path alone.
    """
    return call.reader.get_rows(chat_id, first=first, limit=rows, around=around, along=along, only=only)


def list_bundled_lines(
    call: HttpCall, chat_id: str, row: Row, *, along: Along = None, limit: Limit = 100
) -> list[BranchPointChild]:
    """List the lines that are cut over a row, each by its first message and the branches that have it."""
    return call.reader.list_bundled_lines(chat_id, row, along=along, limit=limit)


def list_branch_points(
    call: HttpCall,
    chat_id: str,
    *,
    after: Above | None = None,
    above: Row | None = None,
    limit: Limit = 100,
    along: Along = None,
) -> BranchPointPage:
    """
    List the messages of a chat that have several answers, by row, each with its children and their branches.

    `after` and `above` are rows; with `above` they are the last ones above it.
    """
    return call.reader.list_branch_points(chat_id, after=after, above=above, limit=limit, along=along)


def get_row_numbers(call: HttpCall, chat_id: str, *, id: Wanted) -> FoundRows:  # noqa: A002 - the name in the query
    """Find the rows of messages, such as the hits of a search."""
    return FoundRows(call.reader.get_row_numbers(chat_id, id))


def get_row_strip(call: HttpCall, chat_id: str, *, height: Height = 800, along: Along = None) -> RowStrip:
    """Read a whole chat drawn in few pixels, for a map beside its rows."""
    return call.reader.get_row_strip(chat_id, height=height, along=along)


def get_row_line(call: HttpCall, chat_id: str, message_id: str) -> RowLine:
    """Read the rows of the line of a message and of all that forks off it: what is folded away together."""
    return call.reader.get_row_line(chat_id, message_id)


_NOT_FOUND: Final = (ChatNotFoundError, MessageNotFoundError)
_NO_PATH: Final = (ChatNotFoundError, BranchNotFoundError)

ROUTES: Final = {
    "rows": [
        Route("GET", "/chats/{chat_id}/rows", get_rows, raises=[*_NO_PATH, MessageNotFoundError]),
        Route("GET", "/chats/{chat_id}/rows/strip", get_row_strip, raises=_NO_PATH),
        Route("GET", "/chats/{chat_id}/rows/numbers", get_row_numbers, raises=[ChatNotFoundError]),
        Route("GET", "/chats/{chat_id}/rows/lines/{message_id}", get_row_line, raises=_NOT_FOUND),
        Route("GET", "/chats/{chat_id}/rows/bundles/{row}", list_bundled_lines, raises=_NO_PATH),
        Route("GET", "/chats/{chat_id}/branch-points", list_branch_points, raises=_NO_PATH),
    ],
}
