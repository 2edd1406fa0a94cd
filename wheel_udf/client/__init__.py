"""Client: what programs on both sides of the scheduler use. Producers build commands here, consumers read deliveries
once.

::

    a program                              the scheduler                         a program
    kafka.schedule("order-7", ...) ---> topic ---> [ wheel ] ---> topic ---> Deliveries: each delivery once
    frames.schedule(orders, ...) -----> table                                   (drops repetitions by wheel-fire-id)

    kafka        arguments of confluent-kafka's ``Producer.produce``, for the presets native and json
    frames       columns of the command contract, from a DataFrame
    checks       the contract's rules for the arguments of both
    deliveries   a consumer that drops repetitions

In: ids, due times, payloads. Out: records, frames, messages; or a ContractError that names the argument, its value and
the rule. A producer learns of a mistake when it makes it, and not from the rejects.

May import: common; pyspark in ``frames`` alone, confluent-kafka inside functions of ``deliveries`` alone. A program
that speaks to Kafka needs no Spark. The room reads no clock.
"""
