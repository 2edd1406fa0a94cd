"""The same work on each version of Spark, and jobs that go on under another one.

::

    environments.py   an environment for each version, below build/versions
    moves.py          a job runs half of its input under one version and the rest under another; the same with an
                      export and an import between
    __main__.py       the checks of each version, one after the other, and a table

``make test-versions`` runs all of it (about an hour), ``make test-versions ARGS='4.0 --checks month'`` what CI runs.
"""
