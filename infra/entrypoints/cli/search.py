"""`search`: messages found by their words or their meaning."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import click
from rich.padding import Padding
from rich.text import Text

from chatledger.domain.draw.outline import escaped, short_id
from chatledger.domain.extras import needing
from chatledger.domain.search.embedding import MODES, Embedding, SearchMode
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField, field_text
from chatledger.domain.values import SearchHits
from chatledger.domain.wire import Value

from ...ledger.search import DEFAULT_LIMIT
from ..named import embedding_named
from .lookup import require_branch, require_chat, require_thread
from .options import GlobalOptions, WholeNumber, aware_time, ledger_at, limit_option, listing_options, parsed
from .output import (
    console,
    fields_of,
    format_time,
    print_csv,
    print_json_list,
    print_lines,
    print_note,
    print_text,
    role_style,
)

_TAG: Final = re.compile("</?mark>")
_MATCH_STYLE: Final = "bold red"


_moment: Final = parsed(aware_time, "is not a time, e.g. 2026-02-07 or 2026-02-07T17:29:24Z")


@click.command("search")
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--chat", "chat_id", metavar="ID", help="Only in this chat.")
@click.option("--thread", "thread_id", metavar="ID", help="In this thread of agents, instead of chats; newest first.")
@click.option("--user", "user_id", metavar="ID", help="Only in the chats of this owner.")
@click.option("--role", "roles", metavar="NAME", multiple=True, help="Only messages of this role; can be repeated.")
@click.option("--branch", metavar="NAME", help="Only messages on the chain of this branch; needs --chat.")
@click.option(
    "--in",
    "within",
    type=click.Choice(FIELDS),
    multiple=True,
    default=(TEXT,),
    help="What is searched of each message, 'text' by default: its text, inputs and outputs of its tools, or its reasoning; can be repeated.",
)
@click.option(
    "--since",
    callback=_moment,
    metavar="TIME",
    help="Only messages created at this time or later (ISO 8601, UTC unless it has an offset).",
)
@click.option("--until", callback=_moment, metavar="TIME", help="Only messages created before this time.")
@limit_option(f"messages, the best ones; {DEFAULT_LIMIT} by default")
@click.option("--offset", type=WholeNumber(min=0), default=0, metavar="N", help="Leave out the N best ones.")
@click.option("--include-hidden", is_flag=True, help="Also messages that are hidden or replaced.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="words",
    show_default=True,
    help="By their words, by what they mean, or by both; for meaning an embedding is needed.",
)
@click.option(
    "--embed",
    metavar="MODULE:NAME",
    help="The chatledger.Embedding of a search by meaning, or a function that makes it. Messages are found that a ledger opened with it has embedded.",
)
@listing_options
def search_command(
    settings: GlobalOptions,
    *,
    words: tuple[str, ...],
    chat_id: str | None,
    thread_id: str | None,
    user_id: str | None,
    roles: tuple[str, ...],
    branch: str | None,
    within: tuple[SearchField, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
    offset: int,
    include_hidden: bool,
    mode: SearchMode,
    embed: str | None,
) -> None:
    """
    Find messages by their words or their meaning, best first.

    All words must occur, in any form: 'fox' finds 'Foxes'. There are AND, OR, NOT in capitals, "phrases", prefix* and
    parentheses; quote them for the shell. With --thread, messages of LangChain in a thread are found. A query that begins with a minus comes after '--'. With --json, an array with one hit a line: message, rank (lower is better), and the snippet with its marks.
    """
    if branch is not None and chat_id is None:
        click.get_current_context().fail("--branch is one of a chat; give --chat too")
    page = _Page(settings, " ".join(words), offset, DEFAULT_LIMIT if limit is None else limit)
    if thread_id is not None:
        others = set(within) - {TEXT}, include_hidden, mode != "words", embed
        _search_thread(page, thread_id, is_alone=not any((chat_id, user_id, roles, branch, since, until, *others)))
        return
    embedding = _embedding(mode, embed)
    with ledger_at(settings, is_read=True) as ledger:
        if chat_id is not None:
            require_chat(ledger, chat_id)
        if chat_id is not None and branch is not None:
            require_branch(ledger, chat_id, branch)
        # One more than asked for tells whether there is another page.
        hits = ledger.search(
            page.query,
            chat_id=chat_id,
            user_id=user_id,
            roles=roles,
            branch=branch,
            within=within,
            since=since,
            until=until,
            limit=page.size + 1,
            offset=offset,
            include_hidden=include_hidden,
            mode=mode,
            embed=embedding,
        )
    _print_hits(page, hits, with_chat=chat_id is None)


def _embedding(mode: SearchMode, named: str | None) -> Embedding | None:
    if mode != "words" and named is None:
        msg = f"--mode {mode} needs --embed MODULE:NAME, the embedding that the ledger is opened with elsewhere"
        click.get_current_context().fail(msg)
    return None if named is None else embedding_named(named)


def _print_hits(page: "_Page", hits: SearchHits, *, with_chat: bool) -> None:
    # On stderr, so beside JSON and CSV too.
    if hits.is_degraded:
        print_note("the search index is being built: of some chats, only messages with exactly this text are found")
    if hits.pending:
        print_note(f"{hits.pending:,} of the messages have no vectors yet, and are found by their words only")
    if page.printed_for_programs(hits, lambda hit: fields_of(hit.message) | fields_of(hit), _CSV_COLUMNS):
        return
    for hit in hits[: page.size]:
        # Author, time and place stand on one line, and the snippet below.
        message = hit.message
        head = Text(escaped(message.name), style=f"bold {role_style(message.name)}")
        place = f"  {format_time(message.created_at)}  {escaped(short_id(message.id))}"
        if with_chat:
            place += f"  [{escaped(message.chat_id)}]"
        if hit.within != TEXT:
            place += escaped(f"  in {hit.within}")
        _print_passage(head.append(place, style="not bold dim default"), hit.snippet, field_text(message, hit.within))
    page.print_end(len(hits))


def _search_thread(page: "_Page", thread_id: str, *, is_alone: bool) -> None:
    if not is_alone:
        msg = "--thread goes with --limit, --offset, --json and --csv; the other options are about chats"
        click.get_current_context().fail(msg)
    with needing("langgraph", "searching a thread"):
        from ..langgraph.saver import LedgerSaver
    # It warns of classes that are not loaded, and only messages are shown.
    logging.getLogger("langgraph").setLevel(logging.ERROR)
    with ledger_at(page.settings, is_read=True) as ledger:
        require_thread(ledger, thread_id)
        limit = page.offset + page.size + 1
        hits = LedgerSaver(ledger).search(page.query, thread_id=thread_id, limit=limit)[page.offset :]
    if page.printed_for_programs(hits, fields_of, _THREAD_COLUMNS):
        return
    for hit in hits[: page.size]:
        head = Text(escaped(hit.role), style=f"bold {role_style(hit.role)}")
        place = f"{hit.checkpoint_id}  {hit.checkpoint_ns}".rstrip()
        head.append(f"  checkpoint {escaped(place)}", style="not bold dim default")
        _print_passage(head, hit.snippet, hit.text)
    page.print_end(len(hits))


_THREAD_COLUMNS = ("thread_id", "checkpoint_ns", "checkpoint_id", "role", "message_id", "snippet")
_CSV_COLUMNS = ("chat_id", "id", "name", "created_at", "rank", "snippet")
H = TypeVar("H", bound=Value)


class _Page(NamedTuple):
    """The page of hits that is asked for; searches find one more than fits on it, which tells whether there is another one."""

    settings: GlobalOptions
    query: str
    offset: int
    size: int

    def printed_for_programs(
        self, hits: Sequence[H], row_of: Callable[[H], Mapping[str, Any]], columns: Sequence[str]
    ) -> bool:
        """Print the hits as CSV or JSON, if that is asked for, and return whether it is."""
        shown = hits[: self.size]
        if self.settings.as_csv:
            print_csv(columns, map(row_of, shown))
        elif self.settings.as_json:
            print_json_list(map(fields_of, shown))
        return self.settings.for_programs

    def print_end(self, hit_count: int) -> None:
        """Print how to go on, or that there is nothing."""
        if not hit_count:
            why = "" if any(map(str.isalnum, self.query)) else ": there is no letter or digit in the query"
            print_text("No more messages match." if self.offset else f"No message matches{why}.")
        elif hit_count > self.size > 0:
            print_text(f"More with --offset {self.offset + self.size}", "dim")


def _print_passage(head: Text, snippet: str, text: str) -> None:
    """Print a heading, and below it the snippet of a text on one line, with its matches in colour instead of between marks."""
    snippet = " ".join(escaped(snippet).split())
    passage = Text()
    if _TAG.search(text):
        # The message has such tags itself. Which are ours cannot be told, so all are shown.
        passage.append(snippet)
    else:
        for at, part in enumerate(_TAG.split(snippet)):
            passage.append(part, style=_MATCH_STYLE if at % 2 else "")
    out = console()
    if out.file.isatty():
        print_lines([head])
        out.print(Padding(passage, (0, 0, 0, 2)))
    else:
        print_lines([head, Text("  ").append_text(passage)])
