"""``python -m wheel_udf``: the command line of :mod:`wheel_udf.job.cli`."""

from __future__ import annotations

import sys

from wheel_udf.job.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
