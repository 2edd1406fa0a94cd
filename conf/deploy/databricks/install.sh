#!/usr/bin/env bash
# An init script of a Databricks cluster: the package without its dependencies, so that the platform's pyspark stays, and then the libraries
# that it needs. It lies in the folder of the bundle, beside what it installs.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
/databricks/python/bin/pip install --no-deps "$root/dist/wheel_udf-0.3.0-py3-none-any.whl"
/databricks/python/bin/pip install --requirement "$root/conf/managed-spark.txt" 'confluent-kafka>=2.5,<3' 'obstore>=0.12,<0.13'
