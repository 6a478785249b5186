"""Drawings of a chat's DAG, from what `Ledger.graph` returns."""

from chatledger.domain.draw.diagrams import draw_dot, draw_mermaid
from chatledger.domain.draw.tree import visualize_graph

__all__ = ["draw_dot", "draw_mermaid", "visualize_graph"]
