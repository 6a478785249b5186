"""Fragments written as the text of a prompt: XML, Markdown, TOML and TOON."""

from chatledger.domain.render.markdown import MarkdownRenderer
from chatledger.domain.render.prepared import Named, Renderer, Rendering, Value
from chatledger.domain.render.toml_toon import TomlRenderer, ToonRenderer
from chatledger.domain.render.xml import XmlRenderer, render

__all__ = [
    "MarkdownRenderer",
    "Named",
    "Renderer",
    "Rendering",
    "TomlRenderer",
    "ToonRenderer",
    "Value",
    "XmlRenderer",
    "render",
]
