"""Names as English words (CE-38) and as titles (CE-49)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fragment_trees import hostile_texts, names

from chatledger.domain.render.words import plural, singular, title


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("tags", "tag"), ("cities", "city"), ("entries", "entry"), ("policies", "policy"), ("children", "child"),
        ("people", "person"), ("indices", "index"), ("data", "datum"), ("analyses", "analysis"), ("statuses", "status"),
        ("boxes", "box"), ("axes", "axis"), ("series", "series"), ("news", "news"), ("mixed", "mixed"),
        ("always", "always"),
        # The last word of a name counts, whatever its style, and its case is kept.
        ("user_ids", "user_id"), ("userIds", "userId"), ("userIDs", "userID"), ("APIKeys", "APIKey"),
        ("style-guides", "style-guide"), ("the children", "the child"), ("grandPeople", "grandPerson"), ("CITIES", "CITY"),
        ("Cities", "City"), ("size_axes", "size_axis"), ("response.caches", "response.cache"), ("größe_tags", "größe_tag"),
    ],
)  # fmt: skip
def test_singulars(many: str, one: str) -> None:
    """The list of CE-38 (the source gets `axes` wrong: `axe`)."""
    assert one == singular(many)


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("hint", "hints"), ("policy", "policies"), ("child", "children"), ("index", "indices"), ("box", "boxes"),
        ("status", "statuses"), ("mixed", "mixed"), ("series", "series"), ("axis", "axes"), ("basis", "bases"),
        ("analogy", "analogies"), ("quirk", "quirks"), ("persona", "personas"), ("alias", "aliases"), ("id", "ids"),
        ("metadata", "metadata"), ("a", "as"), ("os", "os"), ("l2", "l2s"), ("step1", "step1s"),
    ],
)  # fmt: skip
def test_plurals(one: str, many: str) -> None:
    """The list of CE-38 and more; and what is plural already stays."""
    assert many == plural(one)
    assert many == plural(many)


@pytest.mark.parametrize(
    "word",
    ["tag", "status", "analysis", "axis", "basis", "bias", "bus", "address", "class", "process", "alias", "person", "lens",
     "canvas", "corpus", "os", "js", "dns", "aws", "https", "kubernetes", "metadata", "species", "context", "workflow",
     "", " ", "tags2", "tags_", "🦜", "名前", "cafés", "größes", "\u0442\u044d\u0433s", "\n", "\0", "s", "\ud800"],
)  # fmt: skip
def test_what_is_singular_stays(word: str) -> None:
    """Names that end in `s` are not cut, nor those without an English word at the end."""
    assert word == singular(word)


@pytest.mark.parametrize("name", ["tags" * 2500, "a" * 10_000, "aB" * 5000, "_" * 10_000, "s" * 10_000 + "1"])
def test_names_of_ten_thousand_letters(name: str) -> None:
    """No word is that long, and looking for its end takes no time."""
    assert singular(name) in {name, name[:-1]}
    assert plural(name).startswith(name[:-1])
    assert len(title(name)) >= len(name.strip("_"))


@given(names | hostile_texts | st.text())
def test_no_name_is_refused(name: str) -> None:
    """Nor does it become empty; and a title is one line."""
    assert singular(name) or not name
    assert plural(name) or not name
    assert "\n" not in title(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("style_guide", "Style Guide"),
        ("styleGuide", "Style Guide"),
        ("userAPIKey", "User Api Key"),
        ("a_b", "A B"),
        ("hint", "Hint"),
        ("user-name", "User Name"),
        ("user name", "User Name"),
        ("user.name/first", "User Name First"),
        ("__a__b__", "A B"),
        ("HTTPServer", "Http Server"),
        ("APIs", "Apis"),
        ("userIDs", "User Ids"),
        ("userIDsOld", "User Ids Old"),
        ("ISoon", "I Soon"),
        ("html5Parser", "Html5 Parser"),
        ("2nd", "2nd"),
        ("ABC", "Abc"),
        ("größeÄndern", "Größe Ändern"),
        ("e\u0301te\u0301", "E\u0301te\u0301"),
        ("🦜_bird", "🦜 Bird"),
        ("a+b=c", "A B C"),
        ("«a»b", "A B"),
        ("a\nb\x00c\u2028d", "A B C D"),
        ("---", "---"),
        ("\n", ""),
        ("", ""),
    ],
)
def test_titles(name: str, expected: str) -> None:
    """Each word capitalised; a run of capitals is one word (the source gets `a_b` wrong: `a B`)."""
    assert expected == title(name)
