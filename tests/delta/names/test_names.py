"""Tables by their names in a catalog."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_names_lead_to_tables_of_a_metastore() -> None:
    """``with_metastore.py``, in a process of its own: a metastore is chosen when Spark starts."""
    cases = Path(__file__).with_name("with_metastore.py")
    command = [sys.executable, "-m", "pytest", str(cases), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
