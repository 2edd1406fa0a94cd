"""The tests. A package, so that Spark's Python workers can import functions which a test defines."""
