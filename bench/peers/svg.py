"""A few line charts side by side as SVG. Draws; knows no benchmark."""
import html
import math

WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 210, 62, 34, 26
COLOURS = ["#c2410c", "#2563eb", "#0f766e", "#7c3aed", "#a16207", "#be185d", "#475569"]


def charts(title, panels, y_label, log_y):
    """`panels` [(name, {series: [(x, y)]})], x on a logarithmic axis; series keep their colour across panels."""
    names = sorted({name for _, series in panels for name in series}, key=lambda n: (n != "Sightline", n))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    points = [p for _, series in panels for line in series.values() for p in line]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    low, high = (min(ys) / 1.3, max(ys) * 1.3) if log_y else (0.0, max(1.0, *ys) if max(ys) > 0.5 else max(ys) * 1.1)
    width = LEFT + len(panels) * (WIDTH + GAP)
    height = TOP + HEIGHT + 66 + 18 * math.ceil(len(names) / 4)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="11">', f'<title>{html.escape(title)}</title>',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def at(panel, x, y):
        spread = math.log(xs[-1] / xs[0]) or 1.0
        across = 0.06 + 0.88 * math.log(x / xs[0]) / spread
        up = math.log(y / low) / math.log(high / low) if log_y else (y - low) / (high - low)
        return LEFT + panel * (WIDTH + GAP) + across * WIDTH, TOP + HEIGHT - up * HEIGHT

    ticks = log_ticks(low, high) if log_y else [high * i / 5 for i in range(6)]
    for i, (name, series) in enumerate(panels):
        x0 = LEFT + i * (WIDTH + GAP)
        out.append(f'<rect x="{x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#94a3b8"/>')
        out.append(f'<text x="{x0 + WIDTH / 2}" y="{TOP - 8}" text-anchor="middle">{html.escape(name)}</text>')
        for tick in ticks:
            _, y = at(i, xs[0], tick)
            out.append(f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e2e8f0"/>')
            if i == 0:
                out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
        for x in xs:
            px, _ = at(i, x, ticks[-1] if ticks else high)
            out.append(f'<text x="{px:.1f}" y="{TOP + HEIGHT + 15}" text-anchor="middle">{x}</text>')
        for name_, line in series.items():
            places = " ".join("{:.1f},{:.1f}".format(*at(i, x, y)) for x, y in sorted(line))
            weight = 2.5 if name_ == "Sightline" else 1.4
            out.append(f'<polyline points="{places}" fill="none" stroke="{colour[name_]}" stroke-width="{weight}"/>')
            for x, y in line:
                px, py = at(i, x, y)
                out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.6" fill="{colour[name_]}"/>')
    middle = TOP + HEIGHT / 2
    out.append(f'<text x="14" y="{middle}" transform="rotate(-90 14 {middle})" text-anchor="middle">{html.escape(y_label)}</text>')
    out.append(f'<text x="{width / 2}" y="{TOP + HEIGHT + 32}" text-anchor="middle">tokens</text>')
    for i, name in enumerate(names):
        x, y = LEFT + i % 4 * 230, TOP + HEIGHT + 56 + i // 4 * 18
        out.append(f'<rect x="{x}" y="{y - 8}" width="14" height="4" fill="{colour[name]}"/>')
        out.append(f'<text x="{x + 20}" y="{y - 2}">{html.escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def log_ticks(low, high):
    ticks = [m * 10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    return [t for t in ticks if low <= t <= high]
