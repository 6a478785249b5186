"""Contract checks for authors of a log, a projection or a saver. They raise without `assert`, which `python -O` leaves out."""


def require(holds: object, rule: str) -> None:
    """Raise AssertionError unless a rule holds."""
    if not holds:
        raise AssertionError(rule)


def expect(expected: object, actual: object, rule: str) -> None:
    """Raise AssertionError unless both are equal."""
    require(expected == actual, f"{rule}: expected {expected!r}, not {actual!r}")
