"""Recurrence: when a rule occurs next, in a time zone. Pure: texts and numpy; no Spark, no clock.

In: the text of a rule with its zone and policies, columns of instants and anchors. Out: columns of instants::

    "0 9 * * MON-FRI", Europe/Paris --rule.parse_rule--> Rule
                                                          |
              cron_times     days and times that match    |
              steps          so many days or months ------+--> zoned        local times, through the pieces of a
              rrule_times    by dateutil                  |                 zone's clock (local_times) to instants
              elapsed time   one division                 |
                                                     occurrences.Occurrences: after, first, upto, between

How would I add a form of rules? Its grammar goes into ``rule.py``; its local times are a class with the three methods
of :class:`wheel_udf.recurrence.sources.LocalTimes`. Changes of clocks are no concern of it: ``zoned.py`` knows them.

==============  ====================================================================================================
rule            the grammar; what a rule counts
occurrences     the questions, for columns: all that other rooms need
local_times     zones, their changes, local times to instants and back, the policies
zoned           the next, the last and the number of occurrences, across changes
sources         what a rule is to ``zoned``: local times. It is one of ``cron_times``, ``steps``, ``rrule_times``
time_zone_data  the version of the data of time zones
==============  ====================================================================================================

May import: common; numpy, and inside functions cronsim and dateutil. Python workers of Spark load this room.
"""
