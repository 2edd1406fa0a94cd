"""``make demo-orders``: unpaid orders through a real Kafka broker and the purgatory. All of it is in :mod:`wheel_udf.demo_orders`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

# Python puts this folder on the path, not the project's root; an installed package needs neither.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from wheel_udf.demo_orders import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1], say=partial(print, flush=True)))
