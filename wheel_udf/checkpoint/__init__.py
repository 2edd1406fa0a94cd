"""Checkpoint: the folder of a query's progress and state, read beside Spark.

In: the path of a checkpoint. Out: whose it is, which batches are planned and committed, what is damaged::

    <checkpoint>/
      offsets/ commits/ metadata      Spark's logs                        spark_logs, planned_settings
      sources/                        logs of sources of files            spark_logs
      state/                          Spark's state store                 state_files, checksums
      wheel.json                      identity: geometry, shards, clock   identity
      wheel.lease                     one query at a time                 lease, file_lock, lease_records
      wheel-moved*                    moved here, or from here            move_marks
      wheel-chunks/                   files of chunks                     chunk_place, chunk_refs
      wheel-acts/                     requests of acts                    act_files

    inspection finds damage, repair mends what can be mended

May import: common, control, shard, spark; pyspark.
"""
