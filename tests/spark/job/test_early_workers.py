"""Python processes of the first batch, in a real session."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from wheel_udf.job.early_workers import start_early


@pytest.mark.parametrize(("shards", "per_core"), [(1, False), (4_096, True)])
def test_a_process_is_started_for_each_shard_but_no_more_than_there_are_cores(
    spark: SparkSession, shards: int, *, per_core: bool
) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))

    thread = start_early(spark, shards)
    assert thread is not None
    thread.join()

    (job,) = set(tracker.getJobIdsForGroup(None)) - before
    (stage,) = tracker.getJobInfo(job).stageIds  # type: ignore[union-attr]
    info = tracker.getStageInfo(stage)
    assert info is not None
    cores = spark.sparkContext.defaultParallelism
    assert (info.numTasks, info.numCompletedTasks) == ((cores, cores) if per_core else (1, 1))
