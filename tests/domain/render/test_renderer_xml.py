"""XML (CE-39 to CE-48)."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.parsers.expat import ExpatError, ParserCreate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fragment_trees import fragment_lists, hostile_texts, leaf_texts, names, nested

from chatledger.domain.context.fragments import Fragment, fragment
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.render.prepared import prepare
from chatledger.domain.render.xml import xml_name
from chatledger.renderers import XmlRenderer, render

TWO_HINTS = fragment("rules", Fragment("hint", "Use UTC"), Fragment("hint", "No PII"))
NOTHING: list[Any] = []
EMPTY: dict[str, Any] = {}


def hint(text: Any = "x") -> Fragment:
    return Fragment("hint", text)


def lines(*expected: str) -> str:
    return "\n".join(expected)


def xml(*fragments: Any, grouped: bool = False) -> str:
    return XmlRenderer(group_fragments=grouped).render(fragments)


@pytest.mark.parametrize(
    ("given_fragment", "expected"),
    [
        (Fragment("cities", ["Riga", "Oslo"]), "<cities>⏎  <city>Riga</city>⏎  <city>Oslo</city>⏎</cities>"),
        (Fragment("cities", ["Riga"]), "<cities>Riga</cities>"),
        (Fragment("note", "a & b\n\nc"), "<note>⏎  a &amp; b⏎  ⏎  c⏎</note>"),
        (TWO_HINTS, "<rules>⏎  <hint>Use UTC</hint>⏎  <hint>No PII</hint>⏎</rules>"),
        (
            Fragment("users", [hint("x"), "a", {"id": 1}]),
            "<users>⏎  <user>a</user>⏎  <user>⏎    <id>1</id>⏎  </user>⏎  <hint>x</hint>⏎</users>",
        ),
        (
            Fragment("plan", {"list": [hint("one"), "two"], "tip": hint("pack"), "none": {}}),
            "<plan>⏎  <list>⏎    <hint>one</hint>⏎    <list>two</list>⏎  </list>⏎  <hint>pack</hint>⏎</plan>",
        ),
        (fragment("a", fragment("b", "x", "y")), "<a>⏎  <b>x</b>⏎  <b>y</b>⏎</a>"),
    ],
    ids=["cities", "city", "note", "rules", "users", "plan", "unwrapped"],
)
def test_the_table_of_the_requirements(given_fragment: Fragment, expected: str) -> None:
    """CE acceptance 6: character by character."""
    assert expected.replace("⏎", "\n") == xml(given_fragment)


def test_the_grouped_row_of_the_table() -> None:
    expected = "<rules>⏎  <hints>⏎    <hint>Use UTC</hint>⏎    <hint>No PII</hint>⏎  </hints>⏎</rules>"

    assert expected.replace("⏎", "\n") == xml(TWO_HINTS, grouped=True)


def test_fragments_are_joined_by_line_breaks() -> None:
    """Those without content are left out (CE-39)."""
    assert lines("<role>r</role>", "<hint>x</hint>") == xml(
        Fragment("role", "r"),
        Fragment("none", {}),
        Fragment("gone", None),
        Fragment("nothing", [[], {"a": []}]),
        hint(),
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", "<n></n>"),
        (" ", "<n> </n>"),
        ("\t", "<n>\t</n>"),
        ("& < > \" '", "<n>&amp; &lt; &gt; &quot; &apos;</n>"),
        ("]]></n><m/>", "<n>]]&gt;&lt;/n&gt;&lt;m/&gt;</n>"),
        ("&amp;", "<n>&amp;amp;</n>"),
        (True, "<n>true</n>"),
        (3.0, "<n>3</n>"),
        (1e21, "<n>1e+21</n>"),
        ("a\nb", lines("<n>", "  a", "  b", "</n>")),
        ("  a\n b ", lines("<n>", "    a", "   b ", "</n>")),
        ("a\r\nb\rc", lines("<n>", "  a", "  b", "  c", "</n>")),
        ("\na\n", lines("<n>", "  ", "  a", "  ", "</n>")),
        ("\n", lines("<n>", "  ", "</n>")),
        (" \n\t\n ", lines("<n>", "  ", "</n>")),
        ("\0\x1b\ufffe\uffff\ud800\x85", "<n>\ufffd\ufffd\ufffd\ufffd\ufffd\x85</n>"),
        ("\0\n", lines("<n>", "  \ufffd", "  ", "</n>")),
    ],
)
def test_scalars(data: Any, expected: str) -> None:
    """CE-40, CE-41 and, of characters that XML does not allow, CE-48."""
    assert expected == xml(Fragment("n", data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"z": 1, "a": "x"}, lines("<n>", "  <z>1</z>", "  <a>x</a>", "</n>")),
        ({"o": {"k": 1}}, lines("<n>", "  <o>", "    <k>1</k>", "  </o>", "</n>")),
        ({"o": {"k": "x\n\ny"}}, lines("<n>", "  <o>", "    <k>", "      x", "      ", "      y", "    </k>", "  </o>", "</n>")),
        ({"key": hint()}, lines("<n>", "  <hint>x</hint>", "</n>")),
        ({"key": fragment("f", "a")}, lines("<n>", "  <f>", "    <f>a</f>", "  </f>", "</n>")),
        ({"gone": EMPTY, "none": NOTHING, "deep": {"a": {"b": [EMPTY, NOTHING]}}, "kept": ""}, lines("<n>", "  <kept></kept>", "</n>")),
        ({"gone": {"a": None}}, ""),
        ({"key": Fragment("f", {"a": NOTHING})}, ""),
        (
            {"tags": [hint(), "a", {"k": 1}, hint("y")]},
            lines(
                "<n>", "  <tags>", "    <hint>x</hint>", "    <tag>a</tag>", "    <tag>", "      <k>1</k>", "    </tag>",
                "    <hint>y</hint>", "  </tags>", "</n>",
            ),
        ),
        ({"tags": ["a"]}, lines("<n>", "  <tags>", "    <tag>a</tag>", "  </tags>", "</n>")),
    ],
)  # fmt: skip
def test_objects(data: Any, expected: str) -> None:
    """CE-42; and of lists in them CE-45: in their order, fragments included."""
    assert expected == xml(Fragment("n", data))


def test_the_list_of_a_fragment_has_its_fragments_last() -> None:
    """CE-43, at every level."""
    inner = lines(
        "  <tags>", "    <tag>a</tag>", "    <tag>", "      <k>1</k>", "    </tag>", "    <hint>x</hint>", "  </tags>"
    )

    tags = fragment("tags", hint(), "a", {"k": 1})
    assert lines("<outer>", "  <outer>z</outer>", inner, inner, "</outer>") == xml(fragment("outer", tags, "z", tags))


@pytest.mark.parametrize(
    ("given_fragment", "expected"),
    [
        (Fragment("tags", [5]), "<tags>5</tags>"),
        (Fragment("tags", ["a\nb"]), lines("<tags>", "  a", "  b", "</tags>")),
        (Fragment("tags", [{"k": 1}]), lines("<tags>", "  <k>1</k>", "</tags>")),
        (fragment("tags", hint()), lines("<tags>", "  <hint>x</hint>", "</tags>")),
        (Fragment("tags", hint()), lines("<tags>", "  <hint>x</hint>", "</tags>")),
        (Fragment("tags", Fragment("o", {"k": 1})), lines("<tags>", "  <o>", "    <k>1</k>", "  </o>", "</tags>")),
        (
            fragment("tags", fragment("o", hint(), hint("y"))),
            lines("<tags>", "  <o>", "    <hint>x</hint>", "    <hint>y</hint>", "  </o>", "</tags>"),
        ),
        (
            fragment("n", fragment("tags", hint(), "a", {"k": 1})),
            lines("<n>", "  <tags>a</tags>", "  <tags>", "    <k>1</k>", "  </tags>", "  <hint>x</hint>", "</n>"),
        ),
        (Fragment("n", fragment("tags", "a")), lines("<n>", "  <tags>a</tags>", "</n>")),
        (Fragment("tags", [None, "a", None]), "<tags>a</tags>"),
        (Fragment("tags", ["a", {}]), lines("<tags>", "  <tag>a</tag>", "</tags>")),
        (Fragment("tags", [{}]), ""),
        (fragment("n", Fragment("hint", [])), ""),
        (Fragment("rows", [[1, 2]]), lines("<rows>", "  <row>1,2</row>", "</rows>")),  # neither is a list
        (
            Fragment("rows", [["a", {"k": 1}]]),
            lines(
                "<rows>",
                "  <row>",
                "    <row>a</row>",
                "    <row>",
                "      <k>1</k>",
                "    </row>",
                "  </row>",
                "</rows>",
            ),
        ),
        (Fragment("rows", [[]]), ""),
        (
            fragment("n", fragment("o", fragment("tags", "a"))),  # lower levels are not unwrapped
            lines("<n>", "  <o>", "    <tags>", "      <tag>a</tag>", "    </tags>", "  </o>", "</n>"),
        ),
    ],
)
def test_a_single_item_is_unwrapped(given_fragment: Fragment, expected: str) -> None:
    """CE-44: scalar, object or fragment; and of a fragment with a mixed list, the list."""
    assert expected == xml(given_fragment)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"rows": [[1, "a", True], "z"]}, ["  <rows>", "    <row>1,a,true</row>", "    <row>z</row>", "  </rows>"]),
        (
            {"rows": [[1, {"k": 2}]]},
            ["  <rows>", "    <row>", "      <row>1</row>", "      <row>", "        <k>2</k>", "      </row>", "    </row>", "  </rows>"],
        ),
        ({"rows": [[hint(), [1, 2]]]}, ["  <rows>", "    <row>", "      <hint>x</hint>", "      <row>1,2</row>", "    </row>", "  </rows>"]),
        ([[1, 2], [3]], ["  <n>1,2</n>", "  <n>3</n>"]),
        ([NOTHING, "a", [NOTHING, [NOTHING]]], ["  <n>a</n>"]),
        ([["a\nb", "c"], "z"], ["  <n>", "    a", "    b,c", "  </n>", "  <n>z</n>"]),
    ],
)  # fmt: skip
def test_lists_in_lists(data: Any, expected: list[str]) -> None:
    """CE-46: scalars are joined, anything else is a container (the source prints an object placeholder)."""
    assert lines("<n>", *expected, "</n>") == xml(Fragment("n", data))


def test_groups() -> None:
    """CE-47: after the other items, by name in order of first appearance, also of one fragment, at every level."""
    inner = fragment("inner", hint("3"))
    expected = lines(
        "<n>", "  <n>a</n>",
        "  <hints>", "    <hint>1</hint>", "    <hint>2</hint>", "  </hints>",
        "  <policies>", "    <policy>p</policy>", "  </policies>",
        "  <inners>", "    <inner>", "      <hints>", "        <hint>3</hint>", "      </hints>", "    </inner>", "  </inners>",
        "</n>",
    )  # fmt: skip

    assert expected == xml(fragment("n", hint("1"), Fragment("policy", "p"), "a", inner, hint("2")), grouped=True)


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        ([hint("1"), hint("2")], lines("<hint>1</hint>", "<hint>2</hint>")),
        ([fragment("n", hint())], lines("<n>", "  <hint>x</hint>", "</n>")),
        ([Fragment("n", hint())], lines("<n>", "  <hint>x</hint>", "</n>")),
        (
            [Fragment("n", {"list": [hint(), hint("y")], "key": hint("z")})],
            lines(
                "<n>", "  <list>", "    <hint>x</hint>", "    <hint>y</hint>", "  </list>", "  <hint>z</hint>", "</n>"
            ),
        ),
        ([fragment("n", Fragment("hint", []), Fragment("hint", {}))], ""),
        (
            [fragment("n", fragment("tags", "a", hint("1"), hint("2")))],
            lines(
                "<n>", "  <tags>a</tags>", "  <hints>", "    <hint>1</hint>", "    <hint>2</hint>", "  </hints>", "</n>"
            ),
        ),
    ],
    ids=["top-level", "single", "without-list", "object-entries", "empty", "list-of-the-single"],
)
def test_where_nothing_is_grouped(fragments: list[Fragment], expected: str) -> None:
    """Not at the top, not the single fragment, not in objects; but in the list of the single fragment."""
    assert expected == xml(*fragments, grouped=True)


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("user_name", "user_name"),
        ("user name", "user_name"),
        ("1st", "_1st"),
        ("-a", "_-a"),
        (".a", "_.a"),
        ("a-b.c1", "a-b.c1"),
        ("<b>", "_b_"),
        ("a/><b", "a___b"),
        ("a:b", "a_b"),
        ("", "_"),
        ("🦜", "_"),
        ("größe", "größe"),
        ("名前", "名前"),
        ("\u0301a", "_\u0301a"),
        ("a\nb\0", "a_b_"),
        ("xml", "xml"),
    ],
)
def test_names_become_tags(name: str, tag: str) -> None:
    """CE-48 (the source checks no names). As keys, as items and as fragments."""
    assert tag == xml_name(name)
    assert lines("<n>", f"  <{tag}>1</{tag}>", "</n>") == xml(Fragment("n", {name: 1}))
    if name and "\0" not in name:
        assert f"<{tag}>1</{tag}>" == xml(Fragment(name, 1))


def _is_read(document: str) -> bool:
    try:
        ParserCreate(namespace_separator=" ").Parse(document.encode(), True)  # noqa: FBT003 - positional only
    except ExpatError:
        return False
    return True


@pytest.mark.parametrize("before", ["", "a"], ids=["first", "later"])
def test_tags_keep_what_parsers_allow(before: str) -> None:
    """Each character of the basic plane is kept if expat reads it in a name, and replaced if not."""
    characters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    kept = [before + character for character in characters if xml_name(before + character) == before + character]
    others = [
        f"<{before}{character}/>" for character in characters if xml_name(before + character) != before + character
    ]

    assert _is_read("<a>" + "".join(f"<{name}/>" for name in kept) + "</a>")
    # `<a/>`, `<a />` and the like are no longer names: the character ends the tag.
    assert [] == [document for document in others if _is_read(document) and not re.fullmatch(r"<a[\s/:]*/>", document)]


@given(st.text() | names)
def test_every_tag_is_read(name: str) -> None:
    """Also of characters beyond the basic plane."""
    assert ET.fromstring(f"<{xml_name(name)}/>").tag == xml_name(name)


def _as_read(text: str) -> str:
    """A text as an XML document holds it."""
    text = "".join(
        character if character in "\t\n\r" or " " <= character < "\ud800" or "\udfff" < character < "\ufffe" or character > "\uffff"
        else "\ufffd" for character in text
    ).replace("\r\n", "\n").replace("\r", "\n")  # fmt: skip
    return "\n" if "\n" in text and not text.strip() else text


def _read_leaves(element: ET.Element, depth: int) -> Iterator[str]:
    for child in element:
        text = child.text or ""
        if len(child):
            assert not text.strip()
            yield from _read_leaves(child, depth + 1)
        elif "\n" in text:
            inner = text.split("\n")[1:-1]
            assert all(line.startswith("  " * (depth + 1)) for line in inner)
            yield "\n".join(line[2 * (depth + 1) :] for line in inner) or "\n"
        else:
            yield text


@given(fragment_lists, st.booleans())
def test_any_tree_is_well_formed_and_gives_its_texts_back(fragments: list[Any], grouped: bool) -> None:  # noqa: FBT001
    """CE acceptance 6: a parser finds each text in a leaf of its own, and nothing else."""
    document = ET.fromstring(f"<root>\n{xml(*fragments, grouped=grouped)}\n</root>")

    expected = Counter(_as_read(text) for named in prepare(fragments) for text in leaf_texts(named))
    assert expected == Counter(_read_leaves(document, 0))


@given(names, hostile_texts)
def test_no_content_ends_its_element(name: str, text: str) -> None:
    """One fragment, one element."""
    document = ET.fromstring(xml(Fragment("outer", {"key": Fragment(name, text), "after": "x"})))

    assert [xml_name(name), "after"] == [child.tag for child in document]
    assert [0, 0] == [len(child) for child in document]


@pytest.mark.parametrize("grouped", [False, True])
def test_three_thousand_levels(grouped: bool) -> None:  # noqa: FBT001 - a case, not a switch
    """The interpreter's stack ends at 1,000."""
    document = ET.fromstring(xml(nested(3000, "found"), grouped=grouped))

    assert ["found"] == [element.text for element in document.iter() if not len(element)]


@pytest.mark.parametrize(
    ("tag", "children", "expected"),
    [
        ("rules", [hint(), {"name": "hint", "data": "y"}], lines("<rules>", "  <hint>x</hint>", "  <hint>y</hint>", "</rules>")),
        ("rules", [hint()], lines("<rules>", "  <hint>x</hint>", "</rules>")),
        ("rules", [], ""),
        ("rules", [Fragment("hint", None)], ""),
    ],
    ids=["two", "one", "none", "empty"],
)  # fmt: skip
def test_render(tag: str, children: list[Any], expected: str) -> None:
    """CE-35: one fragment with these children; empty without any."""
    assert expected == render(tag, *children)


def test_render_takes_fragments() -> None:
    with pytest.raises(InvalidValueError, match="fragment"):
        render("rules", "Use UTC")  # type: ignore[arg-type]  # that it is refused is the point
