#!/usr/bin/env bash
# An init script of a Databricks cluster: the package without its dependencies, so that the platform's pyspark stays, and then the libraries
# that it needs. WHEEL_UDF_ROOT is the folder of the bundle in the workspace.
set -euo pipefail

/databricks/python/bin/pip install --no-deps "$WHEEL_UDF_ROOT/dist/wheel_udf-0.3.0-py3-none-any.whl"
/databricks/python/bin/pip install --requirement "$WHEEL_UDF_ROOT/conf/managed-spark.txt" 'confluent-kafka>=2.5,<3' 'obstore>=0.12,<0.13'
