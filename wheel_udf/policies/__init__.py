"""Policies: what a step of the wheel leaves to others, as values that are passed in.

In: the settings of a query, the news of its sender. Out: implementations of the protocols of
:mod:`wheel_udf.wheel.policies`::

    stream/wheel_worker --Policies(admit, hold, report)--> wheel.step.advance
                             |      |     |
          shard_limits, limits      |     store_reports     what has ended in the slot store (tiered mode)
          (back-pressure)           |
                                in_flight                   entries handed to a sender ahead of their due time
                                  |-- sender_news           what the sender has confirmed, how much room it has
                                  `-- punctual              Punctual, the setting

Where would I add a policy? Its question is a protocol in :mod:`wheel_udf.wheel.policies`, which a step asks; its answer
is a module here; :mod:`wheel_udf.stream.wheel_worker` passes it in.

May import: common, recurrence, shard, wheel; numpy, pandas, pyarrow. Python workers of Spark load this room.
"""
