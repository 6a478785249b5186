"""Logs in SQL databases by SQLAlchemy: MySQL, MariaDB, SQL Server, Oracle, and also SQLite and PostgreSQL."""
