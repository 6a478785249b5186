"""The documentation, and what generates its reference pages: `python -m docs.generate`."""
