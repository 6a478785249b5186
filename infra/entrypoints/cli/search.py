"""`search`: messages found by their words or their meaning."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
from rich.padding import Padding
from rich.text import Text

from chatledger.domain.draw.escaping import escaped, short_id
from chatledger.domain.search.embedding import MODES, Embedding, SearchMode
from chatledger.domain.search.fields import FIELDS, TEXT
from chatledger.domain.values import HitPlace, SearchHit, SearchHits

from ...ledger.expiry import time_of_text
from ...ledger.ledger import Ledger
from ...ledger.search import DEFAULT_LIMIT
from ...ledger.searching import WHERE
from ...ledger.view import LedgerView
from ..named import embedding_named
from .lookup import is_of_folder, require_branch, require_chat, require_thread
from .options import (
    ID,
    GlobalOptions,
    WholeNumber,
    kept_option,
    kept_where_set,
    ledger_at,
    limit_option,
    listing_options,
    parsed,
)
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

_MATCH_STYLE: Final = "bold red"
_TAKEN: Final = 200
_SPACES: Final = re.compile(r"\s+")


_moment: Final = parsed(time_of_text, "is not a time, e.g. 2026-02-07T17:29:24Z, yesterday, tuesday or 7d")


@click.command("search")
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--chat", "chat_id", type=ID, help="Only in this chat.")
@click.option("--thread", "thread_id", type=ID, help="Only in this thread of agents.")
@click.option(
    "--where",
    type=click.Choice(WHERE),
    default="all",
    help="Only in chats, or only what agents said: in threads, states and items, or in one of these.",
)
@click.option("--user", "user_id", type=ID, help="Only in what belongs to this owner.")
@click.option("--role", "roles", metavar="NAME", multiple=True, help="Only messages of this role; can be repeated.")
@click.option("--branch", metavar="NAME", type=ID, help="Only messages on the chain of this branch; needs --chat.")
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
    help="Only messages created at this time or later (ISO 8601, yesterday, tuesday, 7d; UTC unless it has an offset).",
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
@kept_option
@click.option(
    "--here",
    is_flag=True,
    callback=kept_where_set,
    help="Only in sessions of this folder, and of those below it, in the ledger of transcripts.",
)
@listing_options
def search_command(
    settings: GlobalOptions,
    *,
    words: tuple[str, ...],
    limit: int | None,
    embed: str | None,
    here: bool,
    **filters: Any,
) -> None:
    """
    Find messages by their words or their meaning, best first.

    All words must occur, in any form: 'fox' finds 'Foxes'. There are AND, OR, NOT in capitals, "phrases", prefix* and
    parentheses; quote them for the shell. Messages of chats are found, and those in threads, states and items of agents. A query that begins with a minus comes after '--'. With --json, an array with one hit a line: message, rank (lower is better), the snippet and where its matches are.
    """
    chat_id, thread_id, branch, offset = (filters[name] for name in ("chat_id", "thread_id", "branch", "offset"))
    if branch is not None and chat_id is None:
        click.get_current_context().fail("--branch is one of a chat; give --chat too")
    page = _Page(settings, " ".join(words), offset, DEFAULT_LIMIT if limit is None else limit)
    is_of_agents = thread_id is not None or filters["where"] not in {"all", "chats"}
    embedding = _embedding(filters["mode"], embed, is_of_agents=is_of_agents)
    with ledger_at(settings, is_read=True) as ledger:
        if chat_id is not None:
            require_chat(ledger, chat_id)
        if branch is not None:
            require_branch(ledger, str(chat_id), branch)
        if thread_id is not None:
            require_thread(ledger, thread_id)
        # One more than asked for tells whether there is another page.
        if here:
            hits = _found_here(ledger, page, embed=embedding, **filters)
        else:
            hits = ledger.search(page.query, limit=page.size + 1, embed=embedding, **filters)
    _print_hits(page, hits, with_chat=chat_id is None)


def _found_here(ledger: Ledger | LedgerView, page: "_Page", **filters: Any) -> SearchHits:
    """Return the hits of a page, and one more, in chats of sessions of the folder where the command runs."""
    is_here: dict[str, bool] = {}
    hits_here, at = list[SearchHit](), 0
    while True:
        filters["offset"] = at
        hits = ledger.search(page.query, limit=_TAKEN, **filters)
        for hit in hits:
            chat_id = hit.message.chat_id
            if chat_id not in is_here:
                chat = ledger.get_chat(chat_id)
                is_here[chat_id] = chat is not None and is_of_folder(chat)
        hits_here += [hit for hit in hits if is_here[hit.message.chat_id]]
        at += len(hits)
        if len(hits) < _TAKEN or len(hits_here) > page.offset + page.size:
            shown = hits_here[page.offset : page.offset + page.size + 1]
            return SearchHits(shown, is_degraded=hits.is_degraded, pending=hits.pending)


def _embedding(mode: SearchMode, named: str | None, *, is_of_agents: bool) -> Embedding | None:
    if mode != "words" and is_of_agents:
        msg = "--thread goes with --mode words: messages of agents are not searched by meaning"
        click.get_current_context().fail(msg)
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
    if page.printed_for_programs(hits):
        return
    for hit in hits[: page.size]:
        # Author, time and place stand on one line, and the snippet below.
        message = hit.message
        head = Text(escaped(message.name), style=f"bold {role_style(message.name)}")
        place = f"  {format_time(message.created_at)}  {escaped(short_id(message.id))}"
        if hit.place is not None:
            place += f"  [{escaped(_where(hit.place))}]"
        elif with_chat:
            place += f"  [{escaped(message.chat_id)}]"
        if hit.within != TEXT:
            place += escaped(f"  in {hit.within}")
        _print_passage(head.append(place, style="not bold dim default"), hit.parts)
    page.print_end(len(hits))


def _where(place: HitPlace) -> str:
    """Return where a message is that is in no chat, e.g. `thread t, checkpoint 1f1ec270-1cbc-..., assistant:guide`."""
    unit = "checkpoint" if place.kind == "thread" else "version"
    parts = [f"{place.kind} {place.id}", f"{unit} {place.version}" if place.version else "", place.namespace]
    return ", ".join(filter(None, parts))


def _csv_row(hit: SearchHit) -> Mapping[str, Any]:
    place = {} if hit.place is None else {"kind": hit.place.kind, "in": hit.place.id, "version": hit.place.version}
    return fields_of(hit.message) | fields_of(hit) | place


_CSV_COLUMNS = ("chat_id", "id", "name", "created_at", "rank", "snippet", "kind", "in", "version")


class _Page(NamedTuple):
    """The page of hits that is asked for; searches find one more than fits on it, which tells whether there is another one."""

    settings: GlobalOptions
    query: str
    offset: int
    size: int

    def printed_for_programs(self, hits: Sequence[SearchHit]) -> bool:
        """Print the hits as CSV or JSON, if that is asked for, and return whether it is."""
        shown = hits[: self.size]
        if self.settings.as_csv:
            print_csv(_CSV_COLUMNS, map(_csv_row, shown))
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


def _print_passage(head: Text, parts: Sequence[tuple[str, bool]]) -> None:
    """Print a heading, and below it a snippet on one line, with its matches in colour."""
    passage = Text()
    for part, is_match in parts:
        line = _SPACES.sub(" ", escaped(part))
        passage.append(line if passage else line.lstrip(), style=_MATCH_STYLE if is_match else "")
    passage.rstrip()
    out = console()
    if out.file.isatty():
        print_lines([head])
        out.print(Padding(passage, (0, 0, 0, 2)))
    else:
        print_lines([head, Text("  ").append_text(passage)])
