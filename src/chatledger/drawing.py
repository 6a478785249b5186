"""Drawings of a chat's DAG, from what `Ledger.graph` returns."""

from chatledger.domain.drawing.dot import draw_dot
from chatledger.domain.drawing.mermaid import draw_mermaid
from chatledger.domain.drawing.tree import visualize_graph

__all__ = ["draw_dot", "draw_mermaid", "visualize_graph"]
