"""Tables of small cases in one test: hundreds of tests of a few microseconds each take seconds to collect and report."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def case(*values: object) -> Generator[None]:
    """Names the case in the failure of what is done with it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {', '.join(map(repr, values))}")
        raise
