"""Writes the table of reminders.yml: five reminders due in 2 to 3 minutes (time for the first start), of which one is
moved and one is deleted.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from wheel_udf import build_session

spark = build_session("sample")
now = datetime.now(UTC)
rows = [
    (
        f"reminder-{number}",
        now + timedelta(seconds=120 + 10 * number),
        "reminders_mail",
        f"hello {number}".encode(),
    )
    for number in range(1, 6)
]
columns = "schedule_id string, deliver_at timestamp, destination string, value binary"
table = spark.createDataFrame(rows, columns).write.format("delta")
table.option("delta.enableChangeDataFeed", "true").save("data/reminders/source")
at = f"delta.`{Path('data/reminders/source').absolute()}`"  # in SQL, Delta takes only a whole path
spark.sql(f"UPDATE {at} SET deliver_at = deliver_at + interval 20 seconds WHERE schedule_id = 'reminder-1'")
spark.sql(f"DELETE FROM {at} WHERE schedule_id = 'reminder-2'")
print("data/reminders/source: 4 reminders; next: wheel-udf run --config reminders.yml")
