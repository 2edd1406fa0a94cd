#!/usr/bin/env bash
# A bootstrap action of EMR on EC2: prepares each node for the job. BUCKET is to be replaced.
#
# A Python of its own at /opt/wheel-udf, and beside it the jars of Delta 4.4 and of Kafka. pyspark goes again: a job uses the one of the platform.
set -euo pipefail

sudo install -d -o "$(id -un)" /opt/wheel-udf
python3.11 -m venv /opt/wheel-udf
aws s3 cp s3://BUCKET/wheel_udf-0.3.0-py3-none-any.whl /tmp/wheel_udf-0.3.0-py3-none-any.whl
/opt/wheel-udf/bin/pip install '/tmp/wheel_udf-0.3.0-py3-none-any.whl[s3]' 'pyspark==4.1.3' 'pyarrow<26'
/opt/wheel-udf/bin/pip uninstall --yes pyspark
# Fetched before, because the Java that Ivy needs may come with Spark, and Spark comes after this script.
aws s3 cp --recursive s3://BUCKET/jars/ /opt/wheel-udf/jars/spark/
aws s3 cp s3://BUCKET/job.yml /opt/wheel-udf/job.yml
