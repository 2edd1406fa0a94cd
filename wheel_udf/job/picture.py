"""The picture of a forecast: rows due in each step, by destination. Needs matplotlib.

Bars, because steps without rows are left out, and a line would bridge them. A bar is as wide as the nearest two steps
are apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.extras import missing_package
from wheel_udf.common.instants import parse_instant_ms
from wheel_udf.common.progress import PrintLine

if TYPE_CHECKING:
    import pandas as pd

_DAY_MS: Final = 86_400_000
_LAST_DAY: Final = 2_932_896
"""Days from 1970-01-01 to 9999-12-31, where the dates of matplotlib end."""
_PAST_9999: Final = "+"
"""The first character of the text of a later instant."""
_NAMED: Final = 8
_HATCH: Final = "///"


def draw(steps: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draws a forecast: the eight largest destinations, and the others together. Later occurrences of series are
    hatched. Without years above 9999.

    Args:
        steps: The rows of :func:`wheel_udf.pending.entries.forecast`, ``due_from`` as ISO text.
        file: Where to.

    Raises:
        ConfigError: matplotlib is not installed, or draws no such file.
    """
    if (missing := missing_package("matplotlib", "demo", "--png")) is not None:
        raise missing
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    kinds = figure.canvas.get_supported_filetypes()
    if file.suffix[1:].lower() not in kinds:
        plt.close(figure)
        rule = ", ".join(f".{kind}" for kind in sorted(kinds))
        raise ConfigError("not a kind of picture", field="--png", value=str(file), rule=rule)
    known, estimated = _tables(steps)
    apart = known.index.to_series().diff().min()
    bar: Any = partial(axes.bar, width=apart if len(known) > 1 else 0.01, align="edge")
    base = 0 * known.iloc[:, 0]
    for destination in known.columns:
        bars = bar(known.index, known[destination], bottom=base, label=destination)
        base = base + known[destination]
        if estimated[destination].any():
            look = {"color": bars.patches[0].get_facecolor(), "alpha": 0.6, "hatch": _HATCH}
            bar(known.index, estimated[destination], bottom=base, **look)
            base = base + estimated[destination]
    if estimated.any(axis=None):
        text = "later occurrences of series (estimated)"
        bar([known.index[0]], [0], color="white", edgecolor="grey", hatch=_HATCH, label=text)
    axes.set(title="what falls due, by destination", xlabel="due (UTC)", ylabel="rows a step")
    axes.xaxis_date()
    axes.set_xlim(right=min(axes.get_xlim()[1], _LAST_DAY))
    axes.legend(loc="upper right", fontsize="small")
    figure.autofmt_xdate()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def finish(steps: Sequence[Mapping[str, Any]], file: Path, print_line: PrintLine) -> None:
    """Draws a forecast and says so; one without rows in years that can be drawn is not drawn.

    Raises:
        ConfigError: As :func:`draw`.
    """
    drawn = _drawable(steps)
    if drawn:
        draw(drawn, file)
    print_line(f"drawn: {file}" if drawn else "no picture was drawn")


def _drawable(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    known = (row for row in steps if not row["due_from"].startswith(_PAST_9999))
    return [row for row in known if parse_instant_ms(row["due_from"]) < _LAST_DAY * _DAY_MS]


def _tables(steps: Sequence[Mapping[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables by day and destination: entries, and later occurrences of series."""
    import pandas as pd

    drawn = _drawable(steps)
    # As numbers: pandas has no instants beyond 2262.
    frame: Any = pd.DataFrame(
        {
            "day": [parse_instant_ms(row["due_from"]) / _DAY_MS for row in drawn],
            "destination": [row.get("destination") for row in drawn],
            "rows": [row["rows"] for row in drawn],
            "entries": [row["rows"] - row["estimated"] for row in drawn],
            "estimated": [row["estimated"] for row in drawn],
        }
    )
    table = frame.pivot_table(index="day", columns="destination", aggfunc="sum").fillna(0)
    largest = [*table["rows"].sum().sort_values(ascending=False).index]
    parts = []
    for part in ("entries", "estimated"):
        others = table[part][largest[_NAMED:]].sum(axis=1)
        more = {"others": others} if len(largest) > _NAMED else {}
        parts.append(table[part][largest[:_NAMED]].assign(**more))
    return parts[0], parts[1]
