"""Transfer: moves a job at rest into a new checkpoint of another format, geometry, shard count, mode, clock or path.

An *export* is a folder: tables of versioned rows, the positions of the sources, and a manifest with the account. An
*import* begins a new checkpoint (and, in the tiered mode, a new slot store) from it::

    old checkpoint, old store --export--> folder --import--> new checkpoint, new store

    in the folder   manifest.json   format, account, clock, positions of the sources; written last
                    entries/        pending entries: (id, seq, amend), due time, delay level, payload (Parquet)
                    memory/         records of ended ids, with the instant of their end (Parquet)
                    acts.json       the record of acts
                    sources/N/      which files a source of files has read
    a purgatory has operations, ended, events, ahead, resting and held in place of entries and memory

Design

1. The state has one writer, the operator's worker. The import is the first batch of the new query
   (:mod:`wheel_udf.stream.seed_query`): same sources in the same order, same grouping, same state; but each source is
   a stand-in that has no rows and the position of the old one, and the worker builds states from the rows of the
   export. The next start has the real sources and goes on with batch 1.
2. Nothing is folded again and nothing is released by an import. An entry keeps its version (seq, amend) and its due
   time, so its ``fire_id`` is the old one; a memory record keeps the instant of its end, so it is forgotten when it
   would have been; the clock goes on from the latest clock of any shard and does not go back, so nothing fires before
   the new clock has reached it.
3. The account goes on. Counts are added up and given to the new shards; a store is *settled* first
   (:mod:`wheel_udf.transfer.settled`): far entries that a higher version has ended are counted now. After the import,
   pending and counts must be those of the manifest.
4. At rest only. An export takes the leases and refuses a job that runs, has a planned batch that is not committed, or
   rows in the store that the wheel has not read: one more run (``--trigger available-now``) finishes them.
5. Once. An export marks the old checkpoint, which then refuses to start; an import marks the new one until it is
   complete. Each step of an import is idempotent (a transaction of the store, a batch of Spark), so a killed one is
   repeated; a start before that is refused.

    manifest     Manifest, the format of an export, its folder
    content      what a checkpoint holds, as tables; leases; positions of the sources
    settled      the entries in a slot store that are pending, and how the others ended
    exporting    export_job
    ranks        the rank of a memory record, as Spark columns
    seeds        the scalars of the new shards
    importing    import_direct, import_watch
    into_store   import_tiered
    id_rows      the rows of ids
    forgetting   forget_ids: an export without ids, and its import in the same place

May import: common, shard, wheel, purgatory, control, spark, tables, checkpoint, commands, stream, store, pending,
tiered; pyspark, pyarrow.
"""
