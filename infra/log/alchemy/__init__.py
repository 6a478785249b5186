"""Logs in PostgreSQL, and in other SQL databases by SQLAlchemy: MySQL, MariaDB, SQL Server, Oracle, and also SQLite."""
