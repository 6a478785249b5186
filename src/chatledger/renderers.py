"""Fragments written as the text of a prompt: XML, Markdown, TOML and TOON."""

from chatledger.domain.renderers.base import Renderer
from chatledger.domain.renderers.markdown import MarkdownRenderer
from chatledger.domain.renderers.toml import TomlRenderer
from chatledger.domain.renderers.toon import ToonRenderer
from chatledger.domain.renderers.xml import XmlRenderer, render

__all__ = ["MarkdownRenderer", "Renderer", "TomlRenderer", "ToonRenderer", "XmlRenderer", "render"]
