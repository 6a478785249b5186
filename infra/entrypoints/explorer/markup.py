"""Markup for what others wrote: Markdown, code and JSON as HTML in which nothing can run."""

import html
import json
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Final, Literal

import msgspec
import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType] - its options have no types
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from chatledger.domain.values import SearchHit

MOST_MARKDOWN: Final = 200_000
"""Longer texts are shown as they are: reading Markdown takes a second for each million characters, at best."""

MOST_HIGHLIGHTED: Final = 20_000
"""Longer code is shown without colours: some lexers take quadratic time."""

MOST_CODE: Final = 200_000
"""Of longer code and JSON only the beginning is shown; the page's JSON has all of it."""

_COMPARED: Final = 500
"""The most words of two texts that are compared: hostile ones take quadratic time."""

_LIKE: Final = 0.5
_WORD: Final = re.compile(r"\s*\S+|\s+$")
_TYPED: Final = re.compile(
    r"(?<=[A-Za-z0-9])\*(?=[A-Za-z0-9])"  # 2*3
    r"|(?<!\w)__[a-z][a-z0-9_]*?__(?!\w)"  # __init__
    r"|(?<=[A-Za-z]:)\\[^\w\s]*"  # C:\*.txt
    r"|\n[ \t]+(?=\S)"  # pasted code keeps its indentation
)
_LINKS: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_IMAGES: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/=\s]*", re.IGNORECASE)
_REL: Final = "noopener noreferrer nofollow"
_ATTRIBUTES: Final = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title"},
    "ol": {"start"},
    "td": {"align"},
    "th": {"align"},
    "div": {"tabindex"},
    "pre": {"tabindex"},
    "button": {"type", "data-copy"},
}
_TAGS: Final = frozenset(
    [
        "a",
        "blockquote",
        "br",
        "button",
        "code",
        "del",
        "div",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "img",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "span",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
_CLASSES: Final = {
    "span": {name for name in STANDARD_TYPES.values() if name},
    "code": {"code"},
    "div": {"scroll", "command"},
    "p": {"label"},
    "button": {"quiet"},
}


def markdown(text: str) -> Markup:
    """
    Return Markdown as HTML.

    HTML in it is text. Images are shown where they are in the text itself, others are links: looking at a message tells nobody.
    Headings begin at the fourth level, below those of the page. Links lead to `http`, `https` and `mailto` only. What is typed and
    not meant as Markdown stays: `2*3*4`, `__init__.py`, paths of Windows, blanks at the beginning of a line.
    """
    if len(text) > MOST_MARKDOWN:
        return plain(text)
    return Markup(_CLEANER.clean(_MARKDOWN.render(text)))  # noqa: S704 - this is where it becomes safe


def plain(text: str) -> Markup:
    """Return text as it is, in the lines that it has."""
    shown = text[:MOST_CODE]
    rest = len(text) - len(shown)
    end = Markup('<span class="soft">… and {:,} more characters</span>').format(rest) if rest else ""
    return Markup('<pre tabindex="0">{}</pre>{}').format(shown, end)


def as_said(text: str) -> Markup:
    """Return text to the character: the page keeps its blanks and lines, and formats nothing."""
    shown = text[:MOST_CODE]
    rest = len(text) - len(shown)
    end = Markup('<span class="soft">… and {:,} more characters</span>').format(rest) if rest else ""
    # A browser reads the end of a line, however it was written, as one character.
    escaped = escape(shown).replace("\r", Markup("&#13;"))
    return Markup('<div class="said">{}</div>{}').format(escaped, end)


def code(text: str, language: str = "") -> Markup:
    """Return code, with its parts in classes where the language is known."""
    if len(text) > MOST_HIGHLIGHTED or not language:
        return plain(text)
    return Markup('<pre tabindex="0"><code class="code">{}</code></pre>').format(Markup(_highlighted(text, language)))  # noqa: S704 - Pygments escapes


def copied(content: Markup, head: str) -> Markup:
    """Return code below a head that names it, with a button that copies it."""
    return Markup(
        '<div class="command"><p class="label">{} <button type="button" class="quiet" data-copy>Copy</button></p>{}</div>'
    ).format(head, content)


def json_code(value: Any) -> Markup:
    """Return a JSON value as indented code; text as it is, or as the JSON that it holds."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return plain(value)
        if not isinstance(value, dict | list):
            return plain(str(value))
    return code(json.dumps(value, ensure_ascii=False, indent=2), "json")


def marked(hit: SearchHit) -> Markup:
    """Return the passage that a search found, with its matches marked."""
    return Markup("").join(Markup("<mark>{}</mark>").format(text) if is_match else text for text, is_match in hit.parts)


def icon(name: str) -> Markup:
    """Return a drawing of `icons.html`, which is decoration: what it stands for is said beside it."""
    return Markup('<svg class="icon" aria-hidden="true"><use href="#i-{}"></use></svg>').format(name)


def is_shown_image(url: str) -> bool:
    """Whether this is an image in itself, of a kind in which nothing runs."""
    return _IMAGES.fullmatch(url) is not None


def is_followed(url: str) -> bool:
    return _LINKS.match(url) is not None and url.isprintable()


def _highlighted(text: str, language: str) -> str:
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return html.escape(text)
    spans: str = highlight(text, lexer, _FORMATTER)
    return spans


class _Renderer(RendererHTML):
    """HTML for the tokens of Markdown that differ from the library's."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A block of code, in the language that it names."""
        del options, env
        token = tokens[idx]
        language = "".join(token.info.split(maxsplit=1)[:1])
        return copied(code(token.content, language), language or "text")

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """An indented block of code."""
        del options, env
        return copied(code(tokens[idx].content), "text")

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """An image that is in the text; a link to any other."""
        token = tokens[idx]
        source = str(token.attrGet("src") or "")
        name = self.renderInlineAsText(token.children or [], options, env)
        if is_shown_image(source):
            return f'<img src="{html.escape(source)}" alt="{html.escape(name)}">'
        return f'<a href="{html.escape(source)}">{html.escape(name or source)}</a>'

    def softbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A line break, and no second one: the page keeps those that are in paragraphs, as it keeps blanks."""
        del tokens, idx, options, env
        return "<br>"

    hardbreak = softbreak

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A heading, below those of the page."""
        del options, env
        return f"<{_below(tokens[idx].tag)}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        del options, env
        return f"</{_below(tokens[idx].tag)}>"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A table, which scrolls by itself where it is too wide; also by keys."""
        del tokens, idx, options, env
        return '<div class="scroll" tabindex="0"><table>'

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A cell of a table's head."""
        del options, env
        return _cell(tokens[idx])

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        del options, env
        return _cell(tokens[idx])

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        del tokens, idx, options, env
        return "</table></div>"


def _as_typed(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - as the library calls it
    match = _TYPED.match(state.src, state.pos)
    if match is None or match.end() > state.posMax:
        return False
    if not silent:
        text = match[0]
        if text[0] == "\n":
            state.pending = state.pending.rstrip(" ")
            state.push("softbreak", "br", 0)
        state.pending += text.removeprefix("\n")
    state.pos = match.end()
    return True


def _keep_first_blanks(state: StateCore) -> None:
    """Give a paragraph the blanks back that its first line begins with: those of further lines are kept as they are read."""
    lines = state.src.split("\n")
    for paragraph, inline in pairwise(state.tokens):
        if paragraph.type == "paragraph_open" and not paragraph.level and paragraph.map and inline.children:
            line = lines[paragraph.map[0]]
            blanks = line[: len(line) - len(line.lstrip(" "))]
            inline.children.insert(0, Token("text", "", 0, content=blanks))


def _below(tag: str) -> str:
    return f"h{min(int(tag[1]) + 3, 6)}"


def _cell(token: Token) -> str:
    # Markdown gives its alignment as a style, which the page's policy forbids.
    side = str(token.attrGet("style") or "").removeprefix("text-align:")
    return f'<{token.tag} align="{side}">' if side in {"left", "center", "right"} else f"<{token.tag}>"


def _filtered(tag: str, attribute: str, value: str) -> str | None:
    """Keep addresses of other servers, and images that are in the text."""
    if attribute == "href":
        return value if is_followed(value) else None
    if attribute == "src":
        return value if tag == "img" and is_shown_image(value) else None
    return value


_FORMATTER: Final[HtmlFormatter[str]] = HtmlFormatter(nowrap=True)
_MARKDOWN: Final = MarkdownIt(
    "commonmark", {"html": False, "breaks": True, "maxNesting": 50}, renderer_cls=_Renderer
).enable(["table", "strikethrough"])
_MARKDOWN.inline.ruler.before("newline", "typed", _as_typed)
_MARKDOWN.core.ruler.after("inline", "first_blanks", _keep_first_blanks)
_CLEANER: Final = nh3.Cleaner(
    tags=set(_TAGS),
    attributes=_ATTRIBUTES,
    attribute_filter=_filtered,
    allowed_classes=_CLASSES,
    url_schemes={"http", "https", "mailto", "data"},
    link_rel=_REL,
)


def changed_words(own: str, other: str, tag: Literal["del", "ins"]) -> Markup:
    """Return a text as HTML with the words marked that the other one does not have; of long texts in the first 500 words."""
    mine, theirs = _WORD.findall(own), _WORD.findall(other)
    rest = "".join(mine[_COMPARED:])
    # In one direction for both sides: from the other one on, other words would be those in common.
    before, after = (mine, theirs) if tag == "del" else (theirs, mine)
    blocks = SequenceMatcher(None, before[:_COMPARED], after[:_COMPARED]).get_opcodes()
    parts: list[str] = []
    for op, *ranges in blocks:
        start, end = ranges[:2] if tag == "del" else ranges[2:]
        text = str(escape("".join(mine[start:end])))
        words = text.lstrip()
        is_marked = op != "equal" and words
        parts.append(f"{text[: len(text) - len(words)]}<{tag}>{words}</{tag}>" if is_marked else text)
    return Markup("".join(parts) + str(escape(rest)))  # noqa: S704 - every part was escaped


def is_like(text: str, other: str) -> bool:
    """Whether two texts have at least half of their words in common; of long ones the first 500 count."""
    words, others = (_WORD.findall(each)[:_COMPARED] for each in (text, other))
    # Not in order, which takes quadratic time for hostile texts: a page asks this of each of its forks.
    return bool(words and others) and SequenceMatcher(None, words, others).quick_ratio() >= _LIKE


def edited_words(before: str, after: str) -> Markup:
    """Return a text as HTML with what an edit took out and put in; without what is taken out it is the text after the edit."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    blocks = SequenceMatcher(None, old[:_COMPARED], new[:_COMPARED]).get_opcodes()
    parts: list[Markup] = []
    for op, start, end, to_start, to_end in blocks:
        gone, come = "".join(old[start:end]), "".join(new[to_start:to_end])
        if op == "equal":
            parts.append(escape(come))
            continue
        parts.extend(Markup("<{0}>{1}</{0}>").format(tag, text) for tag, text in (("del", gone), ("ins", come)) if text)
    return Markup("").join([*parts, escape("".join(new[_COMPARED:]))])
