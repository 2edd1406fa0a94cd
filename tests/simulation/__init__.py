"""A deterministic simulation of the protocol around the real core: crashes, replays, odd clocks, zombies. No JVM.

::

    seed --seeds--> steps --world--> processes that are killed, clocks that jump, settings that change
                                        |
              direct: one query         |         tiered: intake, keeper, wheel, acts; purgatory
                                        v
        Spark's role: spark_model       |      Delta's role: delta_model (sinks), store_model (slot store)
                                        |
        real code: WheelWorker and the wheel's step, ClockReader, the checkpoint's identity, logs and journal of settings, note_settings,
        report_of, has_batch; policies: ReturnedRows, Returns of the clock, Turnstile; tiered: Keeper, SlotStore, FileList, TieredRun's clock, Retirements, StoreLayout, act_files, rows_of_act
                                        |
                                        v
        oracle: what must fire in each batch, by a heap --> nothing, or a violation --shrink--> a few steps as a literal

=================  ===========================================================================================
module             does
=================  ===========================================================================================
world              durable things, time, processes; takes steps
disk               files and leases in memory; where a process can die; puts the world under the real code
spark_model        offset log, state versions, commit log, replay
delta_model        tables of sinks: commits with transactions
store_model        the slot store's table, under the real ``SlotStore``; ``frames``: lists instead of DataFrames
tier_rows          what the tiered mode computes with DataFrames, over lists
core               calls the real worker, remembers results
board              the board in memory
delivery_model     a batch from its rows to its report
direct, tiered     the two modes of a scheduler: the life of a process
policies           the direct mode with series, retries and rates
purgatory          operations and events instead of commands
tiered_parts       intake, keeper and wheel in turns; the keeper's lock; acts
oracle             what must happen
policy_oracle      the same with retries and rates, over policy_model; series are those of tests.unit.wheel.series_model
once               no version is delivered twice
faults             planted faults
seeds, run         from a seed to steps; runs them
shrink             makes a failing run small, prints it
=================  ===========================================================================================

``python -m tests.simulation --help``; ``make simulate`` runs 20,000 seeds and all planted faults.

What is modelled and not real: Spark's and Delta's own work, the parse of commands, and the DataFrame expressions
(``tier_rows``, the order of ``write_batch``). ``tests/faults`` kills real processes.
"""
