"""Runs the command line under spark-submit: ``spark-submit jobs/delay_scheduler.py run --config conf/scheduler.yml``.

The same as ``wheel-udf`` and ``python -m wheel_udf``; ``--help`` lists the verbs.
"""

from __future__ import annotations

import sys
from pathlib import Path

# In a checkout spark-submit puts this folder on the path and not the project's root; an installed package is on it.
ROOT = Path(__file__).resolve().parents[1]
if (ROOT / "wheel_udf").is_dir():
    sys.path.insert(0, str(ROOT))

from wheel_udf.job.cli import main  # noqa: E402  # found only now

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
