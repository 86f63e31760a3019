#!/usr/bin/env python3
"""Draws a dashboard from a Prometheus server, without Grafana: a picture for the docs.

    python3 deploy/grafana/render.py overview.json http://localhost:9090 out.png --minutes 30 --set graph=sync

Needs matplotlib. It draws what the dashboard asks, laid out as Grafana would; colours and
fonts are its own.
"""

import argparse
import datetime
import json
import pathlib
import time
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

UNITS = {"s": (1, "s"), "bytes": (1 / 2**20, "MiB"), "percentunit": (100, "%"), "short": (1, "")}


def ask(server, path, **query):
    url = f"{server}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)["data"]["result"]


def legend(template, labels):
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template or ", ".join(v for k, v in sorted(labels.items()) if k not in ("job", "instance"))


def readable(value, unit):
    if unit == "dateTimeFromNow":
        ago = time.time() - value / 1000
        return f"{ago:.0f} s ago" if ago < 120 else f"{ago / 60:.0f} min ago"
    scale, word = UNITS.get(unit, (1, ""))
    value *= scale
    return f"{value:,.0f} {word}".strip() if value == int(value) or value > 100 else f"{value:.3g} {word}".strip()


def draw(axes, panel, server, expand, minutes):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.set_title(panel["title"], fontsize=9, loc="left")
    if panel["type"] == "timeseries":
        end = time.time()
        scale, word = UNITS.get(unit, (1, ""))
        for target in panel["targets"]:
            query = expand(target["expr"])
            step = max(1, minutes * 60 // 300)
            for series in ask(server, "query_range", query=query, start=end - minutes * 60, end=end, step=step):
                at = [datetime.datetime.fromtimestamp(float(t)) for t, _ in series["values"]]
                values = [float(v) * scale for _, v in series["values"]]
                axes.plot(at, values, linewidth=1, label=legend(target["legendFormat"], series["metric"])[:28])
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=6)
        axes.set_ylabel(word, fontsize=7)
        axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M"))
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=5.5, loc="upper left", ncols=2, framealpha=0.6)
        return
    if panel["type"] == "table":
        draw_table(axes, panel, server, expand, unit)
        return
    rows = []
    mappings = {k: v["text"] for m in panel["fieldConfig"]["defaults"]["mappings"] for k, v in m["options"].items()}
    for target in panel["targets"]:
        for series in ask(server, "query", query=expand(target["expr"])):
            value = float(series["value"][1])
            text = mappings.get(str(int(value))) if value == int(value) else None
            rows.append((legend(target["legendFormat"], series["metric"]), value, text or readable(value, unit)))
    if panel["type"] == "stat":
        axes.axis("off")
        axes.text(0.5, 0.45, rows[0][2] if rows else "no data", ha="center", va="center", fontsize=15)
    elif panel["type"] == "bargauge":
        axes.barh([name for name, _, _ in rows], [value for _, value, _ in rows], height=0.5)
        axes.tick_params(labelsize=7)


def draw_table(axes, panel, server, expand, unit):
    """A row for each set of labels, a column for each expression, as Grafana merges them."""
    axes.axis("off")
    units = {o["matcher"]["options"]: "short" for o in panel["fieldConfig"]["overrides"]}
    columns = [target["legendFormat"] or "value" for target in panel["targets"]]
    rows = {}
    for column, target in zip(columns, panel["targets"]):
        for series in ask(server, "query", query=expand(target["expr"])):
            name = legend("", series["metric"])
            rows.setdefault(name, {})[column] = readable(float(series["value"][1]), units.get(column, unit))
    shown = [[name] + [cells.get(column, "") for column in columns] for name, cells in sorted(rows.items())][:12]
    if shown:
        widths = [0.4] + [0.6 / len(columns)] * len(columns)
        table = axes.table(cellText=shown, colLabels=[""] + columns, loc="upper center", cellLoc="left", colWidths=widths)
        table.auto_set_font_size(False)
        table.set_fontsize(6.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dashboard", type=pathlib.Path)
    parser.add_argument("server")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--set", action="append", default=[], metavar="VARIABLE=VALUE")
    args = parser.parse_args()
    dashboard = json.loads(args.dashboard.read_text())
    values = dict(pair.split("=", 1) for pair in args.set)

    def expand(expr):
        for variable in dashboard["templating"]["list"]:
            expr = expr.replace("$" + variable["name"], values.get(variable["name"], ".*"))
        return expr

    panels = dashboard["panels"]
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels)
    figure = plt.figure(figsize=(15, height * 0.3), dpi=80)
    grid = figure.add_gridspec(height, 24, hspace=0.6, wspace=2.2, left=0.06, right=0.985, top=0.95, bottom=0.03)
    figure.suptitle(dashboard["title"], fontsize=13, x=0.06, ha="left")
    for panel in panels:
        at = panel["gridPos"]
        axes = figure.add_subplot(grid[at["y"] : at["y"] + max(1, at["h"] - 1), at["x"] : at["x"] + at["w"]])
        if panel["type"] == "row":
            axes.axis("off")
            axes.text(0, 1.0, panel["title"], fontsize=11, weight="bold")
        else:
            draw(axes, panel, args.server, expand, args.minutes)
    figure.savefig(args.out)


if __name__ == "__main__":
    main()
