"""What a topic has lost, from the places in the checkpoint and what the topic holds."""

from __future__ import annotations

import pytest

from wheel_udf.job.source_topics import Loss, Places, losses
from wheel_udf.kafka.admin import TopicOffsets

AGAIN = "topic t was deleted and created again"
IDS = f"{AGAIN} (id A, now B)"


def topic(topic_id: str = "A", **ranges: tuple[int, int]) -> TopicOffsets:
    return TopicOffsets(topic_id, {int(name[1:]): ends for name, ends in ranges.items()})


@pytest.mark.parametrize(
    ("now", "noted", "until", "found"),
    [
        (topic(p0=(0, 6)), "A", None, []),
        (topic(p0=(6, 9)), "A", None, []),
        (topic(p0=(0, 9), p1=(0, 5)), None, None, []),
        (
            topic(p0=(9, 12)),
            "A",
            None,
            [Loss("offsets 6 to 8 of t/0 were deleted before they were read", 3)],
        ),
        (topic("B", p0=(0, 9)), "A", None, [Loss(f"{IDS}: partition 0 was read up to offset 6, and now holds offsets 0 to 8", 6, True)]),
        (topic("B", p0=(0, 2)), "A", None, [Loss(f"{IDS}: partition 0 was read up to offset 6, and now holds offsets 0 to 1", 2, True)]),
        (topic("B", p0=(0, 0)), "A", None, [Loss(f"{IDS}: partition 0 was read up to offset 6, and now is empty", 0, True)]),
        (topic(p0=(0, 2)), None, None, [Loss(f"{AGAIN}: partition 0 was read up to offset 6, and now holds offsets 0 to 1", 2)]),
        (topic(p0=(0, 5)), "A", None, [Loss("topic t has lost its end: partition 0 was read up to offset 6, and now holds offsets 0 to 4")]),
        (topic("B", p1=(0, 2)), "A", None, [Loss(f"{IDS}: partition 0 is gone, it was read up to offset 6", 0, True)]),
        (None, "A", None, [Loss("topic t was deleted")]),
        # After a batch: only what it has passed over counts.
        (topic(p0=(9, 20)), "A", {0: 8}, [Loss("offsets 6 to 7 of t/0 were deleted before they were read", 2)]),
        (topic(p0=(9, 20)), "A", {0: 6}, []),
        (topic("B", p0=(0, 9)), "A", {0: 2}, [Loss(f"{IDS}: partition 0 was read up to offset 6, and now holds offsets 0 to 8", 2, True)]),
        (topic("B", p0=(0, 9)), "A", {0: 9}, [Loss(f"{IDS}: partition 0 was read up to offset 6, and now holds offsets 0 to 8", 6, True)]),
    ],
    ids=[
        "all-read", "more-to-read", "a-new-partition", "retention", "again-and-longer", "again-and-shorter", "again-and-empty",
        "again-and-no-id-noted", "cut-off", "again-with-fewer-partitions", "deleted", "batch-over-deleted", "batch-of-another-partition",
        "batch-back", "batch-on",
    ],
)  # fmt: skip
def test_a_place_is_compared_with_what_the_topic_holds(
    now: TopicOffsets | None, noted: str | None, until: Places | None, found: list[Loss]
) -> None:
    assert list(losses("t", {0: 6}, now, noted, until)) == found
