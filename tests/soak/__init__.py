"""A soak: each mode for half an hour at a steady rate, on real parts; nothing that it uses may grow, and the ledger must
close.

::

    traffic --files, one a second--> direct | tiered | purgatory --> Delta tables --verify--> lost, early, twice, after a cancel: none
                                          |
                             every second: sampler --> samples.jsonl --analysis--> slope +- error of each figure --> table, picture

    start     warm-up                         measured                              drain
    |---------|------------------------------------------------------------------|--------|
              until the longest delay, the memory                       feeding ends; all that waits comes out
              and the compilers' time have passed

``make soak`` runs 30 minutes a mode, ``make soak ARGS='--total-minutes 5'`` all three in five minutes. The exit code
is 1 if a figure grows, if the ledger does not close, or if there is too little to decide by.

=========  ==================================================================
module     does
=========  ==================================================================
plan       how long, how many, which settings; each with its reason
traffic    the commands, operations and events of each second, from a seed
feeder     writes them as files, one a second
runs       starts a mode, and stops it when nothing waits any more
sampler    what is measured, once a second, as JSON lines
analysis   slopes, their errors, and what counts as growth; pure
reading    when each file was read, from the batches
verify     whether the output is right: the ledger, the purgatory's outcomes
report     the table and the picture
=========  ==================================================================
"""
