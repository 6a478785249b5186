"""Tokens of texts (PS-42), and where they are those of SQLite's FTS5 with `porter unicode61`."""

import json
import os
import re
import string
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.search_scan import fts5, terms_in_fts5
from tests.support.soak import examples

from chatledger.domain.search import beyond_ascii, tokens
from chatledger.domain.search.tokens import (
    MAX_TERM_BYTES,
    PART,
    landmarks_of,
    normalized,
    places_of,
    prefix_term,
    stem,
    terms_of,
    tokens_of,
)

INSIDE: Any = tokens
BEYOND: Any = beyond_ascii
"""For what is only there to be quicker, or to stay small."""

OASST = Path(os.environ.get("CHATLEDGER_OASST") or Path(__file__).parents[4] / "shared/data/oasst1-en-validation.jsonl")

MIXED = st.text(
    st.one_of(
        st.sampled_from(
            "aZ09 é\u0301\ufe0f\u200d'-_“—…👍❤①²東京のガｶﾞกำ่हिन्दीßﬁİ\u0131ς한글\uff21\uff22\uff11عربِ\u3007\ue000\u0378"
        ),
        st.characters(),
    )
)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The foxes were Running", ["the", "fox", "were", "run"]),
        ("état ETAT e\u0301tat", ["etat", "etat", "etat"]),
        ("foo-bar it's user@example.com C++", ["foo", "bar", "it", "s", "user", "exampl", "com", "c"]),
        ("snake_case 3.14 a1b2", ["snake", "case", "3", "14", "a1b2"]),
        ("don\u2019t — “stop”…👍", ["don", "t", "stop"]),
        ("İstanbul Straße ﬁne ΣΊΣΥΦΟΣ ĳ", ["istanbul", "strass", "fine", "σισυφοσ", "ĳ"]),
        ("\uff21\uff22\uff23\uff11 ｶﾞｷﾞ", ["abc1", "ガギ", "ギ"]),
        ("m² ½ Ⅷ", ["m²", "½", "ⅷ"]),
        ("1️⃣ a\ufe0fb", ["1", "ab"]),
        ("a\ufe0fb", ["ab"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Łódź øre đak Ħaġa \u0131ş\u0131k", ["lodz", "or", "dak", "haga", "isik"]),
        ("HTTPSConnection", ["httpsconnect\x03http\x03connect"]),
        ("getUserName URLs APIs", ["getusernam\x03get\x03user\x03name", "url", "api"]),
        (
            "iPhone XMLToJSON parseURLsTo",
            ["iphon\x03phone", "xmltojson\x03xml\x03to\x03json", "parseurlsto\x03pars\x03url\x03to"],
        ),
        (
            "base64Encode größeÄndern 50MB",
            ["base64encod\x03base64\x03encod", "grosseandern\x03gross\x03andern", "50mb"],
        ),
        ("userUser x" + "aB" * 32, ["userus\x03user", "x" + "ab" * 32]),
        ("technology technologies possibly apology", ["technolog", "technolog", "possibl", "apolog"]),
        ("", []),
        ("\0 \ud800 \u200d !?", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert terms == terms_of(text)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("東京都", ["東京", "京都", "都"]),
        ("東", ["東"]),
        ("iPhone手机", ["iphon\x03phone", "手机", "机"]),
        ("第3回", ["第", "3", "回"]),
        ("コーヒー", ["コー", "ーヒ", "ヒー", "ー"]),
        ("二〇二四", ["二〇", "〇二", "二四", "四"]),
        ("か\u3099き", ["がき", "き"]),
        ("กำลัง", ["กำลั", "ลัง", "ง"]),
        ("葛\U000e0100飾", ["葛飾", "飾"]),
        ("ភាសា", ["ភាសា", "សា"]),
        ("서울은", ["서울", "울은", "은"]),
        ("한국어 검색", ["한국", "국어", "어", "검색", "색"]),
        (unicodedata.normalize("NFD", "서울은"), ["서울", "울은", "은"]),
        ("getUser함수ㅋㅋ", ["getus\x03get\x03user", "함수", "수ㅋ", "ㅋㅋ", "ㅋ"]),
    ],
)
def test_scripts_without_blanks_become_pairs(text: str, terms: list[str]) -> None:
    """Each character begins a term, with the next one if there is one, and marks stay with their character."""
    assert terms == terms_of(text)


@settings(max_examples=examples(300))
@given(MIXED)
def test_tokens_are_the_terms_with_their_places(text: str) -> None:
    found = tokens_of(text)
    places = places_of(text, range(len(found)))

    assert [token.term for token in found] == terms_of(text)
    assert [(token.start, token.end) for token in found] == [places[index] for index in range(len(found))]
    assert all(0 <= token.start < token.end <= len(text) for token in found)
    assert all(before.start < token.start and before.end <= token.end for before, token in pairwise(found))
    for token in found:
        assert all(0 < len(term.encode()) <= MAX_TERM_BYTES for term in token.term.split(PART))
        assert not re.search(r"[\0\s]", token.term)


@given(
    st.lists(st.sampled_from(["fox", "x", "7", " ", " - ", "—", "\n"]), max_size=400).map("".join) | MIXED,
    st.randoms(),
    st.integers(1, 9),
)
def test_places_between_landmarks(text: str, random: Random, step: int) -> None:
    """A text is read around the terms only, and they are where they are when it is read from its beginning, or whole."""
    found = tokens_of(text)
    if not found:
        return
    first = random.randrange(len(found))
    some = sorted(random.sample(range(first, min(first + 12, len(found))), k=min(len(found) - first, 5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chatledger.domain.search.tokens.LANDMARK_TERMS", step)
        landmarks = landmarks_of(text)
        places = places_of(text, some, landmarks)

    assert landmarks == [token.start for token in found[step::step]]
    assert {index: (found[index].start, found[index].end) for index in some} == places == places_of(text, some)


@given(MIXED)
def test_quick_ways_lead_to_the_same_tokens(text: str) -> None:
    """Text in ASCII, with signs beyond it, and in Han and Kana alone is told apart only to be quicker."""
    careful = [token for word in BEYOND.WORD.finditer(text) for token in INSIDE._tokens_of_mixed(text, *word.span())]

    assert careful == tokens_of(text)


@given(st.text(string.ascii_letters + string.digits))
def test_parts_of_identifiers_in_ascii_begin_where_those_in_any_letters_do(word: str) -> None:
    quick, careful = (pattern.finditer(word) for pattern in (INSIDE._PART_BEGINS, BEYOND.PART_BEGINS))

    assert [begin.start() for begin in quick] == [begin.start() for begin in careful]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_case_makes_parts_and_no_other_difference(text: str) -> None:
    """So a query in lower case asks for the whole."""
    assert [term.partition(PART)[0] for term in terms_of(text)] == terms_of(text.lower())


def test_signs_are_neither_letters_nor_digits_nor_marks() -> None:
    """So that what the quick way takes for a separator is one."""
    wordish = regex.compile(r"[\p{L}\p{N}\p{M}]")
    characters = [chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, 0x20000))]
    signs = [character for character in characters if not BEYOND._BEYOND_SIGNS.match(character)]

    assert len(signs) > 2000
    assert [character for character in signs if wordish.match(character)] == ["\ufe0f"]


@pytest.mark.guard
def test_letters_near_scripts_without_blanks_are_looked_at_closely() -> None:
    codes = (*range(0x80, 0xD800), *range(0xE000, 0x34000))
    unspaced = [character for character in map(chr, codes) if tokens.is_unspaced(character)]

    assert len(unspaced) > 90_000
    assert [character for character in unspaced if not BEYOND.NEAR_UNSPACED.match(character)] == []


@given(st.text(st.characters(categories=("L", "N", "M", "P", "Z"), max_codepoint=0x1FFFF)))
def test_composed_and_decomposed_text_fold_to_the_same(text: str) -> None:
    assert normalized(unicodedata.normalize("NFC", text)) == normalized(unicodedata.normalize("NFD", text))


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Crème Brûlée", "creme brulee"),
        ("Việt Nam", "viet nam"),
        ("Łódź", "lodz"),
        ("Ǿ ħ \u0131", "o h i"),
        ("שָׁלוֹם", "שלום"),
        ("عِنَايَة", "عناية"),
        ("пейзаж Ёлка", "пеизаж елка"),
        ("हिन्दी", "हिन्दी"),
        ("ガ", "ガ"),
        ("50%_\uff21", "50%_a"),
    ],
)
def test_folding(text: str, bare: str) -> None:
    """Marks that only adorn go; those that make another letter of it stay."""
    assert bare == normalized(text)


@pytest.mark.parametrize("letter", ["a", "é", "я", "中"])
def test_very_long_words_stay_apart(letter: str) -> None:
    words = [letter * 400, letter * 401, letter * 300 + "x" + letter * 99]
    terms = (
        [terms_of(word + "x")[0] for word in words] if letter != "中" else [terms_of("x" * n)[0] for n in (400, 401)]
    )

    assert len(set(terms)) == len(terms)
    assert all(len(term.encode()) <= MAX_TERM_BYTES for term in terms)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 183, 184, 185, 199, 200, 201, 500])
def test_every_word_is_found_by_its_prefixes(size: int) -> None:
    """Of words over 200 bytes the first 184 are kept, and longer prefixes are cut to these."""
    (term,) = terms_of("q" * size)

    assert all(term.startswith(prefix_term("q" * length)) for length in range(1, size + 1))


def test_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words come from users: what is remembered of them is limited in number and length."""
    known = INSIDE._WordCache(str.upper)
    monkeypatch.setattr(tokens, "_MAX_KNOWN_WORDS", 10)

    for number in range(1000):
        assert known[f"w{number}"] == f"W{number}"
        assert len(known) <= 10
    assert known["x" * 10_000] == "X" * 10_000
    assert "x" * 10_000 not in known


def test_threads_get_the_right_stems() -> None:
    words = [
        f"{start}{number}{end}" for number in range(300) for start in ("run", "hop") for end in ("ning", "ations", "s")
    ]
    alone = [stem(word) for word in words]
    INSIDE._TERMS.clear()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(terms_of, [" ".join(words)] * 16))

    assert all(result == alone for result in results)


# ---- FTS5


@pytest.mark.skipif(not OASST.exists(), reason="needs the OASST texts; set CHATLEDGER_OASST")
def test_oasst_texts_have_the_terms_of_fts5() -> None:
    """In order, so positions agree too. The reasons of the twelve texts that differ are tested one by one below."""
    texts = [json.loads(line)["text"] for line in OASST.read_text().splitlines()]
    differs = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Arabic}ßǽ🤔]")
    with fts5(texts) as table:
        theirs = table.terms()
    different = [text for number, text in enumerate(texts) if terms_of(text.lower()) != theirs.get(number, [])]

    assert len(texts) == 2022
    assert len(different) <= 12
    assert [text for text in different if not differs.search(text)] == []


WORDS = st.one_of(
    st.text("aeioustlydrnÀéÎõüñçÅ09'-“…\u0301\u0308", max_size=20),
    st.text("жИя\u2019", max_size=5),
    st.text("λΩ—", max_size=5),
)


@settings(max_examples=examples(60))
@given(st.lists(st.lists(WORDS, max_size=4).map(" ".join), min_size=1, max_size=20))
def test_texts_in_european_scripts_have_the_terms_of_fts5(texts: list[str]) -> None:
    # FTS5 takes three non-words, and `yy` before an ending, to other stems.
    assume(not any(re.search(r"yy|\b(?:eeds?|ies|sses)\b", normalized(text)) for text in texts))
    with fts5(texts) as table:
        theirs = table.terms()

    # FTS5 knows no parts of identifiers, and in lower case they have none.
    assert [terms_of(text.lower()) for text in texts] == [theirs.get(number, []) for number in range(len(texts))]


ENDINGS = re.findall(
    r"\w+",
    """s es ies eed ed ing at bl iz y ational tional enci anci izer bli abli alli entli eli ousli ization ation ator alism
    iveness fulness ousness aliti iviti biliti logi icate ative alize iciti ical ful ness al ance ence er ic able ible
    ant ement ment ent ion sion tion ou ism ate iti ous ive ize e ll""",
)


def test_stems_are_those_of_fts5() -> None:
    """Each pair of endings of Porter's algorithm after stems of different measure."""
    beginnings = ["tr", "ad", "hop", "yield", "conflat", "bio", "x1"]
    words = [beginning + first + last for beginning, first, last in product(beginnings, ENDINGS, ["", *ENDINGS])]
    with fts5(words) as table:
        theirs = table.terms()

    assert len(words) > 10_000
    assert {word: stem(word) for word in words} == {word: theirs[number][0] for number, word in enumerate(words)}


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        pytest.param("straße", ["strass"], ["straß"], id="full case folding: sharp s"),
        pytest.param("ﬁne", ["fine"], ["ﬁne"], id="full case folding: ligatures"),
        pytest.param("ế ǽ", ["e", "æ"], ["ế", "ǽ"], id="letters with two diacritics, or rare ones"),
        pytest.param("\uff4e\uff4f", ["no"], ["\uff4e\uff4f"], id="width forms"),
        pytest.param("عِناية", ["عناية"], ["ع", "ناية"], id="marks of other scripts belong to the word"),
        pytest.param("किताब", ["किताब"], ["क", "त", "ब"], id="vowel signs belong to the word"),
        pytest.param("أحمد", ["احمد"], ["أحمد"], id="composed letters of other scripts"),
        pytest.param("Ёлка й ά", ["елка", "и", "\u03b1"], ["ёлка", "й", "ά"], id="diacritics on other letters than Latin ones"),
        pytest.param("łódź \u0131", ["lodz", "i"], ["łodz", "\u0131"], id="letters with a stroke or without their dot"),
        pytest.param("서울은", ["서울", "울은", "은"], ["서울은"], id="particles"),
        pytest.param("getUser", ["getus\x03get\x03user"], ["getus"], id="parts of identifiers"),
        pytest.param("東京都", ["東京", "京都", "都"], ["東京都"], id="scripts without blanks"),
        pytest.param("a\ue000", ["a"], ["a\ue000"], id="private use is no letter"),
        pytest.param("on 🤔", ["on"], ["on", "🤔"], id="signs that Unicode 6.1 did not know"),
        pytest.param("0eωe", ["0eωe"], ["0eω"], id="English endings of words that are not English"),
        pytest.param("ies eed", ["i", "eed"], ["ie", "e"], id="non-words in Porter's stemmer"),
    ],
)  # fmt: skip
def test_known_differences_from_fts5(text: str, ours: list[str], theirs: list[str]) -> None:
    assert ours == terms_of(text)
    assert theirs == terms_in_fts5(text)


@pytest.mark.parametrize(
    "text",
    [
        "iI",
        "m² ½ Ⅷ ①",
        "ΣΙΣΥΦΟΣ",
        "Lódź",
        "don\u2019t",
        "a\u200db",
        "a\u00adb",
        "naïve",
        "x\u0301y",
        "as is",
        "ös",
    ],
)
def test_known_agreements_with_fts5(text: str) -> None:
    """Numbers of every kind are digits, and simple case folding and single diacritics are the same."""
    assert terms_of(text) == terms_in_fts5(text)


@pytest.mark.parametrize("text", ["salt and more salt", "Salz für Riga"])
def test_terms_that_a_text_lacks(text: str) -> None:
    """An index that is damaged may name them."""
    assert len(places_of(text, [0, 2])) == 2
    with pytest.raises(IndexError):
        places_of(text, [0, 4])
