"""Facts and helpers that every room uses. Each fact is declared here once.

::

    geometry     level, slot and bucket of a due time; as int and as numpy (as Column: commands/tier_columns)
    errors       WheelError and its children: what is wrong, field, value, rule, hint
    names        the rule of destination and topic names; the match of an allow-list
    durations    text such as "10 minutes" or PT10M to ms
    instants     ISO text to UTC epoch ms, and back
    records      a dataclass from JSON that may be damaged
    paths        the folder of a path or URI, whether Hadoop and Spark can hold it, whether one folder is in another
    outcomes     the words of the account: fired, superseded, applied, expired, ...
    progress     a bar or lines that show the progress of long work
    interrupts   Ctrl-C: its exit code, and work that it does not interrupt
    secrets      ${env:NAME} and ${file:/path} in a config, and *** in their place in every text
    command_facts  sizes, header names and bounds of the command contract
    package_data files of data that lie beside the modules
    extras       the error for an optional package that is not installed
    arrays       runs of equal neighbours in numpy arrays

In: texts and numbers. Out: values, or a WheelError. No module here depends on commands, on Spark or on a file
format of this package.

May import: the standard library; ``arrays`` also numpy, ``progress`` tqdm when it draws. So ``python -m
wheel_udf.spark.jars`` runs before the packages are installed.
"""
