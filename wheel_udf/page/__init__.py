"""The page: a job to look at in a browser, and to change pending entries if that is allowed. The verb ``wheel-udf ui``
serves it.

In: a :class:`Subject` (a job: its checkpoint, store, destinations, geometry, and a Spark session) and :class:`Access`
(where to listen, who may do what). Out: HTML over HTTP. The job is not involved: it may run, rest, or run on another
machine::

    state, store, batch log, rejects, acts
       | readings   one function for each kind of figures: Spark in, small dictionary out
       v
    reader          makes them again and again in the background    tasks     searches, dry runs and acts, one at a time
       | figures with their age                                       |  questions, expressions
       v                                                              v
    views, charts   words, numbers, places of bars; no Spark        app       addresses; guard: hosts, token, forms
       |                                                              |
       '------------> templates (HTML, SVG), static (style, script) --'---> server ---> browser

    subject        what a page shows: one job
    shard_sums     counts what a shard holds; runs on executors
    shard_next     finds what is due next in a shard; likewise
    hour           the batch log by minutes
    tiles          the top of the first page; what all cards share
    words          numbers and foreign texts as the page writes them

**No request waits for a reading**: it gets the latest figures with their age, in milliseconds. Figures are read once
per interval and not per click, and a reading rests five times as long as it took; a search, a dry run or an act waits
in a queue of tasks. In the tiered mode, the sizes of the store's windows come from its log at once; the exact count
follows. The page shows which is which.

**Why Flask**, and not a toolkit for dashboards: the page is HTML that the server writes, with forms, so it works from
the keyboard and without its script, and a policy can forbid everything that is not from this host (the toolkits need
inline styles, and load megabytes of scripts). Flask, Jinja2, Flask-WTF and waitress do the routing, the escaping, the
sessions, the protection of forms and the serving. The charts are bars and lines: SVG in templates, coloured by the
style sheet, so they follow light and dark.

This room is below ``job``, which makes a Subject from a config: the page reads no config.

May import: common, shard, control, spark, checkpoint, sinks, delivery, store, pending, metrics; pyspark; flask,
flask_wtf, waitress (extra ``ui``; not in ``shard_sums`` and ``shard_next``, which run on executors: numpy and pyarrow
only).
"""
