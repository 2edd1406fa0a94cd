"""A config is refused before the job starts, or everything can be made from it. A bound that only the library knew was
found after Spark had started.
"""

from __future__ import annotations

from pathlib import Path

from tests.unit.job.configs import written
from tests.unit.job.test_delivery_config import GOOD
from wheel_udf.common.errors import ConfigError
from wheel_udf.job import loader
from wheel_udf.job.compose import identity_of, tiered_wheel_of
from wheel_udf.job.models.scheduler import TieredConfig

DURATIONS = ("1 ms", "0 seconds", "11 minutes", "36500 days", "99999999 days", "999999999999 days")
NUMBERS = ("0", "1", "2", "1000000000", "99999999999999999999")
ALL = ("delivery.punctual=true", "mode=tiered", "store.path=data/store")
"""Every setting below has an effect."""

SETTINGS = {
    "wheel.tick": DURATIONS,
    "wheel.state_horizon": DURATIONS,
    "clock.heartbeat": DURATIONS,
    "contract.max_delay": DURATIONS,
    "contract.memory": DURATIONS,
    "contract.max_lateness": DURATIONS,
    "delivery.ahead": DURATIONS,
    "store.history": DURATIONS,
    "store.keep": DURATIONS,
    "wheel.size": NUMBERS,
    "wheel.levels": NUMBERS,
    "wheel.state_levels": NUMBERS,
    "wheel.shards": NUMBERS,
    "limits.fired_per_batch": NUMBERS,
    "limits.pending": NUMBERS,
    "limits.per_slot": NUMBERS,
    "delivery.rows": NUMBERS,
    "delivery.bytes": NUMBERS,
    "store.lead_windows": NUMBERS,
    "contract.max_value_bytes": NUMBERS,
}


def test_what_a_config_allows_can_be_made(tmp_path: Path) -> None:
    file, allowed = written(tmp_path, GOOD), []
    for setting, values in SETTINGS.items():
        for value in values:
            try:
                job = loader.load(file, (*ALL, f"{setting}={value}"))
            except ConfigError:
                continue
            assert isinstance(job, TieredConfig)
            identity_of(job)
            tiered_wheel_of(job, None)
            allowed.append((setting, value))

    assert ("contract.memory", "36500 days") in allowed
    assert ("wheel.shards", "2") in allowed
