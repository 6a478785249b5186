"""Writing a translated chain."""


class Writer:
    """Writes the turns of a chain in one form."""
