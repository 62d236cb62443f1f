#!/usr/bin/env python3
"""make_figures.py - draws docs/loss.svg and docs/collectives.svg from measurements; Python's standard library only.

    build/lockstep train examples/gpt_tiny.json
    docs/make_figures.py [RUN_DIR]                 runs/gpt_tiny unless said otherwise

    build/lockstep bench collectives -n 4 --json >heap.jsonl     and so on, one file or several
    docs/make_figures.py --collectives heap.jsonl ...             prints the same figures as a table too
"""
import json
import math
import os
import sys

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44  # margins around the plot
INK, GRID, TRAIN, VAL = "#333333", "#e4e4e4", "#9db8d9", "#c0392b"
COLORS = ["#c0392b", "#2c6fad", "#3a8f4d", "#8e5ea2", "#b8860b", "#555555"]


def read(run):
    """{"loss": [(step, value)], "val_loss": [...]} and the resolved config."""
    series = {"loss": [], "val_loss": []}
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        for line in map(json.loads, file):
            for key, points in series.items():
                if key in line:
                    points.append((line["step"], line[key]))
    with open(os.path.join(run, "config.json"), encoding="utf-8") as file:
        return series, json.load(file)


def text(x, y, words, anchor="middle", color=INK, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"{extra}>{words}</text>'


class Plot:
    def __init__(self, series):
        values = [v for points in series.values() for _, v in points]
        self.last = max(step for points in series.values() for step, _ in points)
        self.low, self.high = math.floor(min(values)), math.ceil(max(values))

    def at(self, step, value):
        return (LEFT + step / self.last * (WIDTH - LEFT - RIGHT),
                TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM))

    def line(self, points, color, width):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*p) for p in points))
        return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}" stroke-linejoin="round"/>'

    def axes(self):
        out = []
        for value in range(self.low, self.high + 1):
            y = self.at(0, value)[1]
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
            out.append(text(LEFT - 8, y + 4, value, "end"))
        for quarter in range(5):
            step = round(self.last * quarter / 4)
            out.append(text(self.at(step, 0)[0], HEIGHT - BOTTOM + 18, step, "end" if quarter == 4 else "middle"))
        out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "step"))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        out.append(text(16, middle, "loss, nats a byte", extra=f' transform="rotate(-90 16 {middle:.1f})"'))
        return out


def files(config):
    train = config["data"]["train"]
    return train if isinstance(train, list) else [train]


def caption(config):
    m = config["model"]
    return (f'GPT of {m["n_layer"]} layers, {m["d_model"]} channels, context {m["context"]}, '
            f'batches of {config["batch"]["global"]} sequences, on {os.path.basename(files(config)[0])}')


def draw(series, config):
    plot = Plot(series)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(LEFT, 22, caption(config), "start")]
    svg += plot.axes()
    svg += [plot.line(series["loss"], TRAIN, 1.2), plot.line(series["val_loss"], VAL, 2)]
    for step, value in series["val_loss"]:
        x, y = plot.at(step, value)
        svg.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{VAL}"/>')
    right = WIDTH - RIGHT - 8
    svg.append(text(right, TOP + 24, f'training, {series["loss"][-1][1]:.2f} at the end', "end", "#5b7fae"))
    if series["val_loss"]:
        svg.append(text(right, TOP + 44, f'validation, {series["val_loss"][-1][1]:.2f} at the end', "end", VAL))
    return "\n".join(svg + ["</svg>"]) + "\n"


class LogPlot:
    """Sizes in powers of 4 across, GB/s in powers of 10 up."""

    def __init__(self, series):
        points = [p for line in series.values() for p in line]
        self.sizes = sorted({size for size, _ in points})
        self.low = math.floor(math.log10(min(rate for _, rate in points)))
        self.high = max(math.ceil(math.log10(max(rate for _, rate in points))), self.low + 1)

    def at(self, size, rate):
        first, last = math.log(self.sizes[0]), math.log(self.sizes[-1])
        across = (math.log(size) - first) / (last - first) if last > first else 0.5
        up = (math.log10(rate) - self.low) / (self.high - self.low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def axes(self):
        out = []
        for power in range(self.low, self.high + 1):
            y = self.at(self.sizes[0], 10.0 ** power)[1]
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
            out.append(text(LEFT - 8, y + 4, f"{10.0 ** power:g}", "end"))
        for i, size in enumerate(self.sizes):
            last = i == len(self.sizes) - 1 and i > 0
            out.append(text(self.at(size, 10.0 ** self.low)[0], HEIGHT - BOTTOM + 18, size_text(size), "end" if last else "middle"))
        out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "size"))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        out.append(text(16, middle, "bus bandwidth, GB/s", extra=f' transform="rotate(-90 16 {middle:.1f})"'))
        return out

    def line(self, points, color):
        places = [self.at(*p) for p in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        return [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"/>'] + [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def read_collectives(paths):
    """{label: [(bytes, busbw)]} and what all lines have in common: operation and ranks."""
    series, common = {}, set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in map(json.loads, file):
                if line["bytes"] <= 0 or line["busbw_gbs"] <= 0:
                    continue
                label = f'{line["transport"]}, {line["memory"]} memory'
                series.setdefault(label, []).append((line["bytes"], line["busbw_gbs"]))
                common.add((line["op"], line["n"]))
    if len(common) != 1:
        sys.exit(f"make_figures.py: one operation on one number of ranks wanted, found {sorted(common)}")
    return {label: sorted(points) for label, points in series.items()}, common.pop()


def draw_collectives(series, common):
    plot = LogPlot(series)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 22, f"{common[0]} on {common[1]} ranks of one host", "start")]
    svg += plot.axes()
    for i, (label, points) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        svg += plot.line(points, color)
        svg.append(text(LEFT + 12, TOP + 16 + 18 * i, label, "start", color))
    return "\n".join(svg + ["</svg>"]) + "\n"


def table(series):
    """The same figures as Markdown."""
    labels = list(series)
    lines = ["| size | " + " | ".join(labels) + " |", "|---|" + "---|" * len(labels)]
    for size in sorted({size for points in series.values() for size, _ in points}):
        rates = [dict(series[label]).get(size) for label in labels]
        lines.append(f"| {size_text(size)} | " + " | ".join("" if r is None else f"{r:.3g}" for r in rates) + " |")
    return "\n".join(lines)


def write(name, svg):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), "w", encoding="utf-8") as file:
        file.write(svg)


def main():
    if sys.argv[1:2] == ["--collectives"]:
        series, common = read_collectives(sys.argv[2:])
        write("collectives.svg", draw_collectives(series, common))
        print(table(series))
    else:
        write("loss.svg", draw(*read(sys.argv[1] if len(sys.argv) > 1 else "runs/gpt_tiny")))


if __name__ == "__main__":
    main()
