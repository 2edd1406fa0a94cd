"""Writes the input of orders.yml: three orders of this moment, of which one is paid and one is cancelled."""

import json
from datetime import UTC, datetime
from pathlib import Path

now = datetime.now(UTC).isoformat()
files = {
    "placed": [
        {"order_id": f"order-{number}", "placed_at": now, "total": 9.5 * number} for number in (1, 2, 3)
    ],
    "payments": [
        {"order_id": "order-1", "what": "paid", "at": now},
        {"order_id": "order-2", "what": "cancelled", "at": now},
    ],
}
for name, rows in files.items():
    folder = Path("data/orders", name)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{len(list(folder.iterdir())):04}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(file)
print("order-3 is not paid; next: wheel-udf run --config orders.yml")
