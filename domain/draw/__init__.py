"""Drawings of a chat's DAG: a tree of lines, and text for Mermaid and Graphviz."""
