"""Drawings of a chat's DAG, from what `Ledger.graph` returns, what notebooks show, and the rows that `Ledger.get_rows` and its neighbours return."""

from chatledger.domain.draw.diagrams import draw_dot, draw_mermaid
from chatledger.domain.draw.notebook import draw_html, draw_markdown
from chatledger.domain.draw.rows import (
    BranchPoint,
    BranchPointChild,
    BranchPointPage,
    GraphRow,
    RowBundle,
    RowEdge,
    RowLine,
    RowPoint,
    RowStrip,
    RowWindow,
)
from chatledger.domain.draw.tree import visualize_graph

__all__ = [
    "BranchPoint",
    "BranchPointChild",
    "BranchPointPage",
    "GraphRow",
    "RowBundle",
    "RowEdge",
    "RowLine",
    "RowPoint",
    "RowStrip",
    "RowWindow",
    "draw_dot",
    "draw_html",
    "draw_markdown",
    "draw_mermaid",
    "visualize_graph",
]
