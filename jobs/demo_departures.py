"""Entry of `make demo`: a year of departures through the wheel, checked and drawn (:mod:`wheel_udf.demo`)."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

# Python puts this folder on the path, not the project's root; an installed package needs neither.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from wheel_udf.demo import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1], say=partial(print, flush=True)))
