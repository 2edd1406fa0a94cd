"""Tables: Delta tables by the public format of their log, without a Spark job for each look: read, followed, committed.

In: the place of a table. Out: its version, columns, files, transactions; frames of known files; a commit::

    delta_log           version, columns, properties, transactions of a table
    delta_files         the files of a slot store; rows of known files as a frame
    data_files          rows to Parquet files, written by Spark, with the statistics of their footers
    delta_transaction   one commit: rows, transaction identifiers, removed files
    log_checkpoints     checkpoints of logs, beside the batches, by delta-rs
    named_tables        tables that a catalog knows by name: look-up, creation, appends by Spark's public writer
    table_state         what is known of a table, and whether a plain append honours its protocol

May import: common, control, spark; pyspark, delta, pyarrow, deltalake.
"""
