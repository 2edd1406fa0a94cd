"""The delay scheduler as a job: ``spark-submit jobs/delay_scheduler.py run --config conf/scheduler.yml``.

Plain ``python jobs/delay_scheduler.py`` works as well; ``--help`` says the rest. All of it is in :mod:`wheel_udf.cli`.
"""

from __future__ import annotations

import sys
from pathlib import Path

# spark-submit puts this folder on the path, not the project's root; an installed package needs neither.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from wheel_udf.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
