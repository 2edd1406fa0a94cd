"""The shard: how one of several independent wheels is stored. Pure: numpy and Arrow, and files of the local disk.

In: rows of entries and of memory (:mod:`~wheel_udf.shard.rows`). Out: the state of a shard, one row of Spark's state
store, and the bytes of long chunks, in that row or in files beside the checkpoint::

    one row     version | wheel | clock_ms | next_due_ms | pending | far | counters | one text
                                                                                        |
    the text    directory of chunks | encoded chunks, or the names of their files | index of ids
                   |                       |                                          |
             shard_text, holdings    chunks, row_keys, arrow_text               id_index, merging
                                     chunk_store (interface), chunk_files

    state.py    ShardState: the row, and its chunks by kind (content.py); rows.py: the Arrow schemas
    chunk_sizes by which sizes chunks are cut, merged and written anew;  formats: the version of the row

What a step does not open stays encoded. Which bucket an entry is in, and what is due, is decided in
:mod:`wheel_udf.wheel`.

May import: common; numpy, pandas and pyarrow. Python workers of Spark load this room.
"""
