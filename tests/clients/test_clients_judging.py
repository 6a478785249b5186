"""The comparison itself: a difference that is not listed is seen, and so is a listed one that is none."""

from tests.clients.canonical import Names, canonical, differences
from tests.clients.judging import Entry, compare, stale, unlisted

ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
OTHER_ID = "1ef00000-0000-6000-8000-000000000000"


def test_ids_have_names_that_say_which_are_the_same() -> None:
    value = {
        "run_id": ID,
        "at": "2026-05-01T10:00:00+00:00",
        "seen": [f"lc_run--{ID}", OTHER_ID, ID],
        "metadata": {"url": "http://127.0.0.1:8000/ok"},
    }

    assert canonical(value, Names({}, "http://127.0.0.1:8000")) == {
        "at": "<time>",
        "metadata": {"url": "<url>/ok"},
        "run_id": "<run_id 1>",
        "seen": ["lc_run--<run_id 1>", "<seen 1>", "<run_id 1>"],
    }


def test_each_difference_is_a_line() -> None:
    left = {"status": 200, "order": ["metadata", "values"], "kept": {"a": 1}, "gone": None, "flag": 1}
    right = {"status": 404, "order": ["metadata", "values", "end"], "kept": {"a": 1}, "flag": True}

    assert list(differences(left, right)) == [
        "flag: 1 | true",
        "gone: null | -",
        'order[]: - | "end"',
        "status: 200 | 404",
    ]
    assert list(differences(left, left)) == []


def test_a_difference_has_to_be_listed_for_its_call() -> None:
    compared = compare({"a: x": {"status": 200}, "a: y": {"status": 200}}, {"a: x": {"status": 404}, "a: z": {}})

    assert unlisted(compared, [Entry("not found", ["a: x"], ["status: * | 404"])]) == {
        "a: y": ["called: true | false"],
        "a: z": ["called: false | true"],
    }
    assert unlisted(compared, [Entry("of another call", ["a: y"], ["status: * | 404"])])["a: x"] == [
        "status: 200 | 404"
    ]
    assert unlisted(compared, [Entry("another status", ["a: x"], ["status: * | 422"])])["a: x"] == ["status: 200 | 404"]


def test_what_is_listed_has_to_be_so() -> None:
    compared = {"a: x": ["status: 200 | 404"], "a: y": []}

    assert list(stale(Entry("so", ["a: x"], ["status: * | 404"]), compared)) == []
    assert list(stale(Entry("so", ["*"], ["status: * | 404"]), compared)) == []
    assert list(stale(Entry("equal", ["a: x", "a: y"], ["status: * | 404"]), compared)) == [
        "'a: y' does not differ so: equal"
    ]
    assert list(stale(Entry("gone", ["a: x", "a: z"], ["status: * | 404"]), compared)) == ["there is no call 'a: z'"]
    assert list(stale(Entry("old", ["*"], ["status: * | 404", "raises: *"]), compared)) == [
        "nothing fits 'raises: *': old"
    ]
