"""Tests of what is said where the packages of an extra are missing."""

import pytest

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.extras import needing


def test_an_import_that_names_no_module_is_quoted() -> None:
    """As that of psycopg where there is no libpq: what is missing then is in its words only."""
    reason = "no pq wrapper available"

    with (
        pytest.raises(ConfigurationError, match=rf"reading needs .*{reason}.*pip install 'chatledger\[postgres\]'"),
        needing("postgres", "reading"),
    ):
        raise ImportError(reason)
