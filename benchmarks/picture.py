"""Charts of a run (matplotlib): how far each problem is from the limit, and lines for the sweeps."""

import math

from benchmarks.sweeps import UNITS

_MARKS = "osD^v"


def draw(rows, path, title=""):
    """Draw rows into a file: problems as columns, or one small chart for each problem of a sweep."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if any("gbs" in result for result in row["results"].values())]
    if not rows:
        raise ValueError("there is nothing to draw: no row has a time")
    figure = _sweep_charts(pyplot, rows) if rows[0].get("sweep") else _roofline(pyplot, rows)
    figure.suptitle(title, fontsize=9, y=1.02)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(figure)


def _libraries(rows):
    return list(
        dict.fromkeys(name for row in rows for name, result in row["results"].items() if "gbs" in result)
    )


def _roofline(pyplot, rows):
    figure, axes = pyplot.subplots(figsize=(max(7, 0.28 * len(rows) + 2), 6))
    columns = range(len(rows))
    names = _libraries(rows)
    for number, name in enumerate(names):
        points = [
            (x, row["results"][name]["gbs"])
            for x, row in zip(columns, rows, strict=True)
            if "gbs" in row["results"].get(name, {})
        ]
        axes.plot(
            *zip(*points, strict=True),
            _MARKS[number % len(_MARKS)],
            label=name,
            zorder=3,
            markersize=7 if number == 0 else 5,
            fillstyle="full" if number == 0 else "none",
        )
    for x, row in zip(columns, rows, strict=True):
        gbs = row["results"].get(names[0], {}).get("gbs")
        if row["limit"] and gbs:
            axes.plot([x, x], [gbs, row["limit"]], color="0.75", linewidth=1, zorder=1)
    limits = [(x, row["limit"]) for x, row in zip(columns, rows, strict=True) if row["limit"]]
    if limits:
        axes.plot(
            *zip(*limits, strict=True),
            "_",
            color="black",
            markersize=11,
            label="machine's limit at that size",
        )
    axes.set_yscale("log")
    axes.set_ylabel("GB/s on minimal traffic")
    axes.set_xticks(list(columns), [_label(row) for row in rows], rotation=90, fontsize=6)
    axes.grid(axis="y", which="both", alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _label(row):
    shape = "x".join(map(str, row["shape"]))
    return f"{row['name'] or row['driver']} {shape} {row['dt']} {row['tag']} {row['direction']}"


def _sweep_charts(pyplot, rows):
    charts = {}
    for row in rows:
        charts.setdefault((row["sweep"], row["driver"], row["series"]), []).append(row)
    across = min(4, len(charts))
    down = math.ceil(len(charts) / across)
    figure, grid = pyplot.subplots(down, across, figsize=(4 * across, 3 * down), squeeze=False)
    for axes in grid.flat[len(charts) :]:
        axes.axis("off")
    for axes, ((sweep, driver, series), chart) in zip(grid.flat, charts.items(), strict=False):
        unit, factor = ("µs a call", 1e6) if sweep == "overhead" else ("GB/s", 1.0)
        key = "median" if sweep == "overhead" else "gbs"
        for name in _libraries(chart):
            points = [
                (row["x"], row["results"][name][key] * factor)
                for row in chart
                if key in row["results"].get(name, {})
            ]
            axes.plot(*zip(*points, strict=True), "o-", markersize=3, label=name)
        limits = [(row["x"], row["limit"]) for row in chart if row["limit"]]
        if limits and sweep != "overhead":
            axes.plot(*zip(*limits, strict=True), "--", color="black", linewidth=1, label="limit")
        axes.set_title(f"{driver} {series}", fontsize=8)
        axes.set_xlabel(UNITS[sweep], fontsize=7)
        axes.set_ylabel(unit, fontsize=7)
        axes.set_yscale("log")
        if sweep in ("size", "overhead"):
            axes.set_xscale("log", base=2)
        axes.tick_params(labelsize=6)
        axes.grid(alpha=0.3)
    grid.flat[0].legend(fontsize=7)
    figure.tight_layout()
    return figure
