"""The process in which Spark plans the clock's batches starts fast: planning loads no numpy, pandas or pyarrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
from pathlib import Path
from wheel_udf.control.source import ClockSource
from wheel_udf.control.clocks import EventClock, clock_options

options = clock_options(EventClock(), 2, Path(sys.argv[1]))
reader = ClockSource(options).streamReader(None)
start = reader.initialOffset()
end = reader.latestOffset(start)
assert end != start and len(reader.partitions(start, end)) == 1
print(*sorted({"numpy", "pandas", "pyarrow"} & set(sys.modules)))
"""


def test_planning_a_tick_loads_no_numpy_pandas_or_pyarrow(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    planned = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], cwd=root, check=True, capture_output=True, text=True
    )

    assert planned.stdout.split() == []
