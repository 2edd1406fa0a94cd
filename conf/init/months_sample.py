"""Writes the input of months.yml: 1,000 rows due within half a year, the first ones in 2 minutes: time for the first
start.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

now = datetime.now(UTC)
folder = Path("data/months/commands")
folder.mkdir(parents=True, exist_ok=True)
file = folder / f"{len(list(folder.iterdir())):04}.json"
with file.open("w", encoding="utf-8") as out:
    for number in range(1_000):
        due = now + timedelta(minutes=2, seconds=15.7 * number**2)  # 2 min, 2 min 16 s, 3 min, ... 182 days
        row = {
            "schedule_id": f"customer-{number}",
            "deliver_at": due.isoformat(),
            "destination": "renewals" if number % 3 else "birthdays",
            "value": f"number {number}",
        }
        out.write(json.dumps(row) + "\n")
print(f"{file}; next: wheel-udf run --config months.yml")
