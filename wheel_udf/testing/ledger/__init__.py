"""The ledger checker: decides from the input and the sinks of a run alone whether the run was right.

::

    commands (the input) ---.
                            v
    fired rows (tables,  --> check(...) --> Report   ok, counts, findings by kind, what cannot be decided
      topics)               ^    ^
    dead letters, rejects --'    '--- pending, account (both optional)

    id order-7        SCHEDULE 1          CANCEL 2
                      |                   |     due
    wheel's clock ----+-------------------+------+----------------->
                      read                read   |
                                                 fired here: ``after_cancel``;  not fired: right
    id order-8        SCHEDULE 1              due    CANCEL 2 may be read anywhere in here
                      |                       |   [~~~~~~~~~~~~~~~~~~~~~]
    wheel's clock ----+-----------------------+-------------------------->
                                              fired or not fired: either is right, ``undecided``

It uses nothing of the code that it checks: it has its own reading of the command contract (README, "Command contract"
and "Guarantees") and imports no room but ``common``. In: Arrow tables, pandas frames, Spark DataFrames or dicts. It
needs no Spark.

Kinds of findings, each one a fault of the run
----------------------------------------------

==================  ================================================================================================
lost                a version that had to be out at :attr:`Rules.until_ms` is in no sink, nor pending
overdue             the same, but it is still pending
early               released before the due time of its command
twice               released again: the same row or attempt twice in an exactly-once sink, the same version with two
                    rows, an occurrence that the series before has released, a delivery that is also a dead letter
wrong_occurrence    a row of a series that is no occurrence of its rule, or has the wrong ``occurrence`` or
                    ``missed_before``, or is not the newest one that was due
after_cancel        released although a CANCEL was read before
superseded          released although a higher version was read before, or released itself
no_command          a row of an id that no command has
wrong_version       a row of an id with a ``seq`` that no SCHEDULE of the id has
altered             key, value, headers or due time are not those of the command
wrong_destination   another destination than the command's, or found in another table or topic than it names
bad_figures         ``lateness_ms``, ``scheduled_at`` or ``level_error_ms`` do not fit the row's instants
fire_id             no fire id, one fire id for two versions, or two fire ids for one version
late                released more than :attr:`Rules.fires_within_ms` after it was due and read
missed_wrongly      in the rejects as ``missed`` although it was not later than its ``max_lateness``
not_missed          delivered although it was later than its ``max_lateness``
fired_and_rejected  released although all commands of that version are in the rejects
reject_missing      a command that breaks the contract is not in the rejects
reject_unexplained  a row of the rejects without ``error_code`` or ``error_message``
reject_no_command   more rows in the rejects than commands, of an id
not_pending         a row of ``pending`` that no command can have left there
account             the account does not close, or does not agree with the rows
==================  ================================================================================================

When a command was read
-----------------------

A cancel is effective if it is read before, or in, the batch that would fire. Input and sinks do not say when that was,
but they often bound it. Instants are those of the wheel's clock:

* the columns ``read_from`` and ``read_by`` (or ``read_from_ms``, ``read_by_ms``) of a command: it was read between the
  two;
* :attr:`Rules.read_within_ms`: without ``read_by``, a command is read at most so long after its ``event_time``. 0
  holds for an event clock and input in the order of its event times; with the wall clock it is the longest time on the
  way;
* the column ``batch``, or :attr:`Rules.in_order`: which of two commands was read first;
* the rows themselves: what has fired was read before.

What these do not decide is *undecided*: fired or not fired, both are right. :attr:`Report.undecided` counts it, with
examples. So a correct run is never accused. If much is undecided, give more of the above.

=======================  ==========================================================================================
an id has                what is decided
=======================  ==========================================================================================
one SCHEDULE             must be out if due; must not be early; only once
a version on top         the highest SCHEDULE, with no CANCEL above it, must be out if due
a higher version         read before the lower one was due: the lower one must not be out. Read more than
                         ``fires_within_ms`` after it was due: the lower one must be out. Between: undecided
an end, then a repeat    after ``memory`` an id starts anew: the lower version or the copy may fire again. Before, not
equal ``seq``            a CANCEL is above a SCHEDULE. Of copies with other contents any may fire, but only one
no ``seq``               the column ``source_seq`` (Kafka's offset), else ``event_time`` in ms. With neither: contents
                         and due time are checked, the order of versions is not
acts (move, reroute)     rows of the input, too: the changed command, with the same ``seq`` and a higher ``amend``.
                         Read after that ``seq`` has fired, it must not fire
a FIRE_NOW               ``seq`` up to its own may be out from when it was read, with that instant as ``deliver_at``;
                         must be out, if the SCHEDULE was read before for certain
a RETRY                  no version. What was given back may also be a dead letter, or missed
several attempts         one release, with one fire id; a further attempt is not ``late``
a dead letter            the end of its version. What is out after it may have been sent again: undecided
a series                 :mod:`wheel_udf.testing.ledger.series`: each occurrence once, none left out but those that
                         ``missed_before`` and the rejects count
=======================  ==========================================================================================

Refusals that depend on the job's config (allow-list, ``max_delay``, sizes, limits) are believed if they have a reason;
the report counts rejects by code. Durations and instants in forms that the checker does not read make a command
*unclear*: it may be in the rejects or fire, but need not. So do rules of series in forms that it does not read, RRULEs
where dateutil is not installed, and series without ``event_time``. Purgatory: not checked here.

Cost: O(commands + rows + occurrences), about 1.5 kB of memory for a command and its row. Ids are independent of each
other: more than some millions of commands can be checked in parts, by a hash of the id.
"""

from __future__ import annotations

from wheel_udf.testing.ledger.account import (
    account_of_summary as account_of_summary,
)
from wheel_udf.testing.ledger.check import (
    check as check,
)
from wheel_udf.testing.ledger.columns import (
    Frame as Frame,
)
from wheel_udf.testing.ledger.readers import (
    fired_of_kafka as fired_of_kafka,
    read_delta as read_delta,
    read_files as read_files,
    rejects_of_kafka as rejects_of_kafka,
)
from wheel_udf.testing.ledger.report import (
    KINDS as KINDS,
    Finding as Finding,
    LedgerError as LedgerError,
    Report as Report,
)
from wheel_udf.testing.ledger.rules import (
    Rules as Rules,
)
