"""Sources: opens the streaming frames of commands, of operations and of events, from their sections of the config.

::

    section source ---------------> read_commands ---> commands       files.py    folders of parquet, json, csv
    sections operations, events --> read_both -------> two frames     tables.py   Delta tables and their change feeds
                                                                      topics.py   Kafka, and topics of delay levels

Every format gives the same shape: the columns of the source as they are, plus ``source_coordinates`` (the place of the
row in the source, for the rejects), and ``event_time`` filled with the source's own timestamp where it is missing::

    format   columns                                   coordinates            event_time if missing
    parquet  of the files; empty folder: the contract  file#row number        modification time of the file
    csv      of the header; empty folder: contract     file                   modification time of the file
    json     of the contract                           file                   modification time of the file
    delta    of the table                              the table              left null: the batch's own timestamp
    its feed of the table and of commands.change_feed  orders@v7              time of the commit
    kafka    of the preset (commands.kafka_presets)    topic/partition/offset timestamp of the record

Lines of JSON without ``schema`` are read like records of Kafka's preset ``json``, see
:mod:`wheel_udf.commands.json_objects`. With a ``schema``, and with options of Spark's parser (``multiLine``,
``encoding``, ``mode``, ``allow...``), Spark's own reader reads them.

Text formats. Columns of csv and json are read as strings, and :mod:`wheel_udf.commands.parse` reads the times and
numbers in them, so that a bad ``seq`` becomes a reject and not a silent null. A line of csv or json that does not
parse keeps its text in ``_corrupt_record`` and loses its ``schedule_id``: it becomes a reject with its text, even if
some of its columns could be read.

Kafka. A first start reads from the earliest offset unless ``startingOffsets`` says otherwise; later starts continue
from the checkpoint alone. Before the query starts, the cluster is asked whether the topics exist (those of
``subscribePattern`` may be created later), because Spark would wait minutes for the answer. Records have their offset
as ``source_seq``, the default version of their commands. Options: :mod:`wheel_udf.job.kafka_options`.

Topics of delay levels. Each is a Kafka source of its own in the one query, so that its intake
can pause alone. Spark matches the offsets of a checkpoint to sources by their order, so these topics are fixed by the
first start. A paused source stays in the query and reads nothing (``maxOffsetsPerTrigger`` 0): no offset moves, and
the next start continues from there. Removing the topic from ``subscribe`` instead would lose its offsets: Spark keeps
only those of the topics that it reads, stops for data loss (``failOnDataLoss``), and reads the topic from its earliest
record when it is added again.

Changes. With the option ``readChangeFeed`` a Delta table is read as the log of its changes:
:mod:`wheel_udf.commands.change_feed`. Whether the table keeps changes is checked before the start; a start at an
earlier version than the first kept one (``startingVersion``) fails with Delta's own error.

What cannot be known before the stream runs (a later file with other types) fails the batch with Spark's own error,
which :mod:`wheel_udf.spark.failures` puts into a sentence.

Caveats: Spark fixes the columns when the query starts; new columns in later files are not seen until a restart. Delta
streams carry no file metadata, so the coordinates of a table are only its path.
"""
