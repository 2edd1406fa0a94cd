#!/usr/bin/env bash
# A bootstrap action of EMR on EC2: prepares each node for the job. BUCKET is to be replaced.
#
# A Python of its own at /opt/wheel-udf, with the jars of Delta 4.4 and of Kafka. pyspark is there to fetch the jars of its version, and goes again:
# a job uses the one of the platform.
set -euo pipefail

sudo install -d -o "$(id -un)" /opt/wheel-udf
python3.11 -m venv /opt/wheel-udf
aws s3 cp s3://BUCKET/wheel_udf-0.3.0-py3-none-any.whl /tmp/wheel_udf-0.3.0-py3-none-any.whl
aws s3 cp s3://BUCKET/job.yml /opt/wheel-udf/job.yml
/opt/wheel-udf/bin/pip install '/tmp/wheel_udf-0.3.0-py3-none-any.whl[s3]' 'pyspark==4.1.3' 'pyarrow<26'
/opt/wheel-udf/bin/python -m wheel_udf.spark.jars spark
/opt/wheel-udf/bin/pip uninstall --yes pyspark
