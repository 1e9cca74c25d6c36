# SPDX-License-Identifier: Apache-2.0
"""A small SVG drawing, and axes. The pictures need no package, so they are there where the peers are not."""

import html
import math

INK, FAINT, GRID = "#222222", "#666666", "#dddddd"


class Drawing:
    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts = []

    def text(self, x, y, words, anchor="start", size=12, color=INK, bold=False, turn=0):
        weight = ' font-weight="bold"' if bold else ""
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}"'
                          f'{weight}{turned}>{html.escape(words)}</text>')

    def line(self, x1, y1, x2, y2, color=INK, width=1.0, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
                          f'stroke-width="{width}"{dashed}/>')

    def box(self, x, y, width, height, color, opacity=1.0):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{color}" '
                          f'fill-opacity="{opacity}"/>')

    def path(self, points, color, width=2.0, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{_joined(points)}" fill="none" stroke="{color}" stroke-width="{width}"{dashed}/>')

    def area(self, points, color, opacity=1.0):
        self.parts.append(f'<polygon points="{_joined(points)}" fill="{color}" fill-opacity="{opacity}"/>')

    def mark(self, x, y, shape, color, size=4.0):
        if shape == "circle":
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{color}"/>')
        elif shape == "square":
            self.box(x - size, y - size, 2 * size, 2 * size, color)
        elif shape == "triangle":
            self.area([(x - size - 1, y + size), (x + size + 1, y + size), (x, y - size - 1)], color)

    def write(self, path):
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="Helvetica, Arial, sans-serif" role="img">\n<title>{html.escape(self.title)}</title>\n'
            f'<rect width="{self.width}" height="{self.height}" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def _joined(points):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


class Axis:
    """Of values low … high to begin … end on the paper."""

    def __init__(self, low, high, begin, end, log=True):
        self.low, self.high, self.begin, self.end, self.log = low, high, begin, end, log

    def __call__(self, value):
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + (self.end - self.begin) * share

    def ticks(self):
        if not self.log:
            step = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
            step *= next(each for each in (1, 2, 5, 10) if (self.high - self.low) / (step * each) <= 8)
            first = math.ceil(self.low / step)
            return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        narrow = math.log10(self.high / self.low) < 3
        ticks = [each * 10.0**decade for decade in decades for each in ((1, 2, 5) if narrow else (1,))]
        return [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]


def number(value):
    """As short as it can be read: 0.5, 2, 1000, 10⁶, 64 Mi."""
    if value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{int(value) >> 20} Mi"
    if value >= 10_000 and math.log10(value) == round(math.log10(value)):
        return "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(round(math.log10(value))))
    return f"{value:.10g}"
