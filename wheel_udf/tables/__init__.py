"""Tables: Delta tables without a Spark job for each look at them: read, followed, committed.

In: the place of a table. Out: its version, columns, files, transactions; frames of known files; a commit::

    delta_log           version, columns, properties, transactions of a table
    delta_files         rows of known files as a frame
    delta_transaction   one commit: rows, transaction identifiers, removed files
    log_checkpoints     checkpoints of logs, beside the batches
    table_state         what is known of a table;  delta_public: the same by public API, slower

May import: common, spark; pyspark, delta, py4j.
"""
