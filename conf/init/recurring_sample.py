"""Writes the input of recurring.yml: four series. The first comes every two minutes, five times; so there is time for
the first start.
"""

import json
from pathlib import Path

series = [
    {"schedule_id": "pulse", "repeat": "every 2 minutes", "count": 5, "destination": "reports_pulse"},
    {"schedule_id": "stand-up", "repeat": "0 9 * * MON-FRI", "time_zone": "Europe/Paris", "value": "at nine"},
    # The last day of the month; what an outage has missed is sent afterwards, each day for itself.
    {"schedule_id": "invoices", "repeat": "0 8 L * *", "time_zone": "America/New_York", "on_missed": "all"},
    {"schedule_id": "trial", "repeat": "@daily", "count": 14, "value": "days left"},
]
folder = Path("data/recurring/commands")
folder.mkdir(parents=True, exist_ok=True)
file = folder / f"{len(list(folder.iterdir())):04}.json"
with file.open("w", encoding="utf-8") as out:
    for each in series:
        out.write(json.dumps({"destination": "reports_daily", **each}) + "\n")
print(f"{file}; next: wheel-udf run --config recurring.yml")
