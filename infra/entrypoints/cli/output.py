"""Printing: text for people, JSON for programs, errors and progress on stderr."""

import contextlib
import csv
import json
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.console import Console
from rich.text import Text

from chatledger.domain.draw.escaping import ESCAPES, escaped
from chatledger.domain.wire import Value, encode_plain

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from chatledger.domain.values import Progress

ROLE_STYLES: Final = {"user": "cyan", "assistant": "green", "system": "magenta", "tool": "yellow"}
OTHER_ROLE: Final = "blue"
HEAD, ACTIVE_HEAD, CHECKPOINT = "yellow", "bold green", "bold magenta"
_WIDE: Final = 1_000_000
# Line breaks and tabs stay; what else controls a terminal does not come from a conversation.
_MULTILINE: Final = {code: " " for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\n\t"} | ESCAPES
_ESCAPED_IN_JSON: Final = re.compile(f"[\x7f-\x9f{''.join(map(chr, ESCAPES))}]")
_QUICK_EVENTS: Final = 1000
"""So many are done before a bar would be seen."""


_consoles: dict[bool, Console] = {}


class _Console(Console):
    """Leaves a closed pipe to the command, which ends silently."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """
    The console on the present stdout or stderr. Content is never taken for markup.

    Output that is no terminal is not wrapped. Colours are for terminals; `FORCE_COLOR` and `NO_COLOR` say otherwise.
    """
    stream = sys.stderr if stderr else sys.stdout
    # One for each stream, so that what is printed beside a progress bar does not break it.
    out = _consoles.get(stderr)
    if out is None or out.file is not stream:
        width = None if stream.isatty() else _WIDE
        out = _consoles[stderr] = _Console(file=stream, width=width, markup=False, emoji=False, highlight=False)
    return out


def print_lines(lines: Iterable[Text], *, is_cut: bool = False) -> None:
    """Print each text on one line, cut to the width of a terminal if asked for."""
    out = console()
    is_cut = is_cut and out.file.isatty()
    for line in lines:
        if out.color_system is None and not is_cut:
            # A hundred thousand events go to a file this way.
            out.file.write(line.plain + "\n")
        elif is_cut:
            out.print(line, no_wrap=True, overflow="ellipsis")
        else:
            out.print(line, soft_wrap=True)


_GAP: Final = "  "


def column(
    title: str,
    values: Iterable[str],
    *,
    style: str = "",
    align: Literal["left", "right"] = "left",
    width: int | None = None,
) -> list[Text]:
    """A heading and cells, all equally wide; at most `width`."""
    cells = [Text(title, style="bold"), *(Text(escaped(value), style=style) for value in values)]
    longest = max(cell.cell_len for cell in cells)
    for cell in cells:
        cell.truncate(longest if width is None else min(longest, width), overflow="ellipsis")
        cell.align(align, longest if width is None else min(longest, width))
    return cells


def table(columns: Sequence[list[Text]]) -> list[Text]:
    """Columns side by side, as lines."""
    rows = [Text(_GAP).join(cells) for cells in zip(*columns, strict=True)]
    for row in rows:
        row.rstrip()
    return rows


def table_width(columns: Sequence[list[Text]]) -> int:
    """How wide columns are, with what is between them and another one."""
    return sum(cells[0].cell_len + len(_GAP) for cells in columns)


def print_text(text: str = "", style: str = "") -> None:
    """Print a sentence for people on stdout."""
    console().print(Text(escaped(text), style=style))


def print_more(left_out: int) -> None:
    """Print how much of a list `--limit` has left out, if anything."""
    if left_out > 0:
        print_text(f"{left_out:,} more, --limit cut them", "dim")


_ON_THE_COMMAND_LINE: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"forget the feed\b", "run 'chatledger feeds --forget NAME'"),
        (r"with after=([0-9]+)", r"with --after \1"),
        (r"with after=", "with --after"),
        (r"share=\(([0-9]+), ([0-9]+)\)", r"?share=\1/\2 in its location"),
        (r"without share=", "without ?share= in its location"),
        (r"create=True, or (?='chatledger )", ""),
        (r"files_only=True, (?=--files-only)", ""),
        (r"chatledger\.open\(.*\), or (\w+) for the command line", r"\1 in the environment"),
        (r"chatledger\.Encryption\.new_key\(\)", "'openssl rand -base64 32'"),
        (r"^keep_days must be (.*), or None for ever,", r"--days must be \1,"),
        (r"^(thread|user|chat|message)_id must", r"the id of a \1 must"),
        # There is no option for an index elsewhere.
        (r"; or keep the index on a volume .*index_at_rest='plain'\)", ""),
    )
)
"""The methods and arguments that errors advise, and the verbs and options that do the same. Rooms below know no command line."""


def print_error(message: str) -> None:
    """Print a mistake on stderr, on one line, with what to do in the words of the command line."""
    for pattern, replacement in _ON_THE_COMMAND_LINE:
        message = pattern.sub(replacement, message)
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), escaped(message)), soft_wrap=True)


def print_note(message: str) -> None:
    """Print something that is no error on stderr, on one line."""
    console(stderr=True).print(Text(escaped(message), style="yellow"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print one JSON value on one line of stdout."""
    # Not by the console, which has colours where they are forced: this is for programs.
    sys.stdout.write(encode_json(value) + "\n")


def print_json_list(values: Iterable[Any]) -> None:
    """Print a JSON array with one value a line."""
    sys.stdout.write("[")
    between = "\n"
    for value in values:
        sys.stdout.write(between + encode_json(value))
        between = ",\n"
    sys.stdout.write("\n]\n")


def encode_json(value: Any) -> str:
    """Return a value as JSON on one line, in ASCII where the output cannot show more; on a terminal nothing is unseen in it."""
    text = encode_plain(value).decode()
    if not (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        return re.sub(r"[^\x00-\x7f]", _as_json_escape, text)
    return _ESCAPED_IN_JSON.sub(_as_json_escape, text) if sys.stdout.isatty() else text


def _as_json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def fields_of(value: Value) -> dict[str, Any]:
    """All fields by name, also those that have their default; times in ISO 8601."""
    return value.to_dict(times="iso")


def print_values(values: Iterable[Value], columns: type[Value], *, as_csv: bool) -> None:
    """Print a list for programs: a JSON array with one value a line, or CSV whose columns are the fields."""
    if not as_csv:
        print_json_list(map(fields_of, values))
        return
    print_csv((*columns.__struct_fields__, *columns.derived), map(fields_of, values))


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print these fields of rows as CSV with a heading: None is empty, objects and lists are JSON. On a terminal nothing is unseen in it."""
    is_terminal = sys.stdout.isatty()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = (_cell(row.get(name)) for name in columns)
        writer.writerow(map(multiline, cells) if is_terminal else cells)


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else encode_json(value)


def multiline(text: str) -> str:
    """Return a text without what would control a terminal."""
    return text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).translate(_MULTILINE)


def format_time(milliseconds: int) -> str:
    """UTC with milliseconds, as `--until` takes it."""
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a message brings its time along, which may be any number
        return f"{milliseconds} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def format_minute(milliseconds: int) -> str:
    """UTC to the minute, for tables."""
    return format_time(milliseconds)[:16].replace("T", " ")


def count(number: int, thing: str, plural: str | None = None) -> str:
    """`1 message`, `2,022 messages`."""
    return f"{number:,} {thing if number == 1 else plural or thing + 's'}"


def count_streams(chats: int, messages: int | None = None, *, threads: int, states: int) -> str:
    """`1 chat, 2 messages, 3 threads of agents`: the kinds that there are, and chats where there is nothing."""
    others = ((threads, "thread of agents", "threads of agents"), (states, "state of a graph", "states of graphs"))
    parts = [count(number, *names) for number, *names in others if number]
    if chats or not parts:
        own = [count(chats, "chat")] if messages is None else [count(chats, "chat"), count(messages, "message")]
        parts = [*own, *parts]
    return ", ".join(parts)


def role_style(role: str) -> str:
    """The colour of a role."""
    return ROLE_STYLES.get(role, OTHER_ROLE)


@contextlib.contextmanager
def progress_bar(title: str) -> Generator["Progress"]:
    """A bar on stderr for (done, total), shown when it is worth it; nothing where stderr is no terminal."""
    with contextlib.ExitStack() as stack:
        bar: RichProgress | None = None

        def show(done: int, total: int) -> None:
            nonlocal bar
            if bar is None and total > _QUICK_EVENTS and sys.stderr.isatty():
                from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
                from rich.progress import Progress as Bar

                columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
                bar = stack.enter_context(Bar(*columns, console=console(stderr=True), transient=True))
                bar.add_task(title)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done, total=total)

        yield show


@contextlib.contextmanager
def pulse(title: str) -> Generator[Callable[[str], None]]:
    """A bar on stderr for work of unknown length, which says what is being done; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda text: bar.update(task, description=escaped(text))
