"""
State for conversations with AI agents: a DAG of immutable messages on an append-only log.

    import chatledger
    from chatledger import user

    with chatledger.open("./chatledger-data") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("Plan a weekend in Riga")])

All names are imported on first use: plugins and command lines that only name the package start at once.
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
        if name == "__all__" or not name.startswith("_"):
            found = _public()
            if name in found:
                return found[name]
        msg = f"module 'chatledger' has no attribute {name!r}"
        raise AttributeError(msg)

    def __dir__() -> list[str]:
        """Every public name, also those that were not used yet."""
        return sorted({*globals(), *_public()})

    def _public() -> dict[str, object]:
        # Not `from chatledger import _facade`, which would ask `__getattr__` for it.
        from importlib import import_module

        names = vars(import_module("chatledger._facade"))
        found = {name: names[name] for name in ("__all__", *names["__all__"])}
        found["open"] = import_module("chatledger.infra.ledger.open").open
        globals().update(found)
        return found
