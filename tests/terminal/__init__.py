"""The pictures of a terminal in the docs: a first job, typed for real, and ``wheel-udf top``."""
