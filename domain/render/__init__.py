"""Fragments written as text for a model: XML, Markdown, TOML, TOON."""
