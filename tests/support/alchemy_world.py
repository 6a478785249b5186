"""Places of logs by SQLAlchemy, one kind for each database that the tests can start or are given."""

import itertools
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ALCHEMY_KINDS: Final = ("sqlite+pysqlite", "postgresql+psycopg", "mysql+pymysql", "mssql+pyodbc")
MSSQL: Final = "CHATLEDGER_TEST_MSSQL"
"""Names a SQL Server on which the tests may make databases: `mssql+pyodbc://sa:password@host/master?driver=...`."""


def new_alchemy_location(request: pytest.FixtureRequest, kind: str, folder: Path) -> Callable[[], str]:
    """Return what makes an empty database of a kind and returns its location. Skips where there is none."""
    pytest.importorskip("sqlalchemy")
    if kind == "sqlite+pysqlite":
        numbers = itertools.count()
        return lambda: f"{kind}:///{folder}/alchemy{next(numbers)}.db"
    if kind == "mysql+pymysql":
        new_database: Callable[[], str] = request.getfixturevalue("new_mariadb_database")
        return new_database
    if kind == "postgresql+psycopg":
        new_postgres: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return lambda: new_postgres().replace("postgresql://", "postgresql+psycopg://", 1)
    server = os.environ.get(MSSQL)
    if server is None:
        pytest.skip(f"{MSSQL} names no SQL Server")
    return lambda: _new_mssql_database(server)


def _new_mssql_database(server: str) -> str:
    import sqlalchemy

    name = f"chatledger_{uuid.uuid4().hex}"
    url = sqlalchemy.make_url(server)
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return url.set(database=name).render_as_string(hide_password=False)
