"""The command line: a thin layer over the methods of `Ledger`. One module for a few verbs each, imported when used."""

from .app import cli, main

__all__ = ["cli", "main"]
