"""Curves as SVG: both axes logarithmic, so that what is in proportion is a straight line, and what is promised flat is level."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from .curves import Curve

_WIDTH: Final = 720
_HEIGHT: Final = 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 30, 50
_COLOURS: Final = ("#0b6e99", "#c4552d", "#4d7c2a", "#7a4fa3", "#9a7b1c", "#5b6770")
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def write_plots(folder: Path, curves: Sequence[Curve]) -> None:
    """Draw the curves into `scaling.svg` of a folder; nothing without curves."""
    if curves:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scaling.svg").write_text(draw(curves), encoding="utf-8")


def draw(curves: Sequence[Curve]) -> str:
    """All curves in one plot: messages in the chat to the right, time for one operation upwards."""
    sizes = [size for curve in curves for size, _ in curve.points]
    times = [seconds for curve in curves for _, seconds in curve.points]
    across = _Axis(min(sizes), max(sizes), _LEFT, _WIDTH - _RIGHT)
    up = _Axis(min(times), max(times), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        '<g font-family="sans-serif" font-size="12">',
        "<title>Time for one operation against the messages in the chat, both logarithmic</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_grid(across, up),
        *_lines(curves, across, up),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


class _Axis:
    """Powers of ten from below the least value to above the greatest one, on a stretch of pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.first = math.floor(math.log10(low) + 1e-9)
        self.last = max(math.ceil(math.log10(high) - 1e-9), self.first + 1)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return round(self._start + share * (self._end - self._start), 1)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


def _grid(across: _Axis, up: _Axis) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts: list[str] = []
    for value in across.ticks:
        x = across.at(value)
        parts += [
            f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}" stroke="#dddddd"/>',
            f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" fill="#444444">{value:,.0f}</text>',
        ]
    for value in up.ticks:
        y = up.at(value)
        parts += [
            f'<line x1="{_LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#444444">{_duration(value)}</text>',
        ]
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle" fill="#222222">messages in the chat</text>'
    )
    return parts


def _lines(curves: Sequence[Curve], across: _Axis, up: _Axis) -> list[str]:
    parts: list[str] = []
    ends = sorted((up.at(curve.points[-1][1]), number) for number, curve in enumerate(curves))
    labels = _apart([end for end, _ in ends])
    heights = {number: label for (_, number), label in zip(ends, labels, strict=True)}
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(across.at(size), up.at(seconds)) for size, seconds in curve.points]
        parts.append(
            f'<polyline points="{" ".join(f"{x},{y}" for x, y in points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        x = _WIDTH - _RIGHT + 12
        parts.append(f'<text x="{x}" y="{heights[number] + 4}" fill="{colour}">{escape(curve.name)}</text>')
    return parts


def _apart(heights: Sequence[float], least: float = 16) -> list[float]:
    """The heights of labels, from the top, moved down where they would overlap."""
    found = list(heights)
    for above, below in pairwise(range(len(found))):
        found[below] = max(found[below], found[above] + least)
    return found


def _duration(seconds: float) -> str:
    for factor, unit in _UNITS:
        if seconds >= factor * 0.999:
            return f"{seconds / factor:,.0f} {unit}"
    return f"{seconds:g} s"
