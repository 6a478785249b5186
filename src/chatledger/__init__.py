"""
State for conversations with AI agents: a DAG of immutable messages on an append-only log.

    import chatledger
    from chatledger import user

    with chatledger.open("./chatledger-data") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("Plan a weekend in Riga")])

`help(chatledger.open)` has the options of opening. All names are imported on first
use: plugins and command lines that only name the package start at once.
"""

import typing as _t

if _t.TYPE_CHECKING:
    from chatledger._facade import *  # noqa: F403 - its `__all__`
    from chatledger._facade import __all__ as __all__
    from chatledger.infra.ledger.open import open as open  # noqa: A004 - it reads as `gzip.open` does

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Import the public names, or read `__version__` from the installed metadata, on first use."""
        if name == "__version__":
            from importlib.metadata import version

            return version("chatledger")
        # Not `from chatledger import _facade`, which would ask this function for it.
        from importlib import import_module

        if name == "open":
            globals()[name] = import_module("chatledger.infra.ledger.open").open
            return globals()[name]
        if name == "__all__" or not name.startswith("_"):
            facade = import_module("chatledger._facade")
            if name == "__all__" or name in facade.__all__:
                globals()[name] = getattr(facade, name)
                return globals()[name]
        msg = f"module 'chatledger' has no attribute {name!r}"
        raise AttributeError(msg)

    def __dir__() -> list[str]:
        """Every public name, also those that were not used yet."""
        from importlib import import_module

        # Without what is private and the functions above: `help` and the completion of a shell show what is listed here.
        public = {name for name in globals() if not name.startswith("_")} - {"domain", "infra", "projections"}
        return sorted(public | {"__version__", "open", *import_module("chatledger._facade").__all__})
