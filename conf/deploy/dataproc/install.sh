#!/usr/bin/env bash
# An initialization action of Dataproc: prepares each node for the job. BUCKET is to be replaced.
#
# A Python of its own at /opt/wheel-udf, with the jars of Delta 4.4 and of Kafka. pyspark is there to fetch the jars of its version, and goes again:
# a job uses the one of the platform.
set -euo pipefail

apt-get update
apt-get install -y python3-venv
python3 -m venv /opt/wheel-udf
gcloud storage cp gs://BUCKET/wheel_udf-0.3.0-py3-none-any.whl /tmp/wheel_udf-0.3.0-py3-none-any.whl
gcloud storage cp gs://BUCKET/job.yml /opt/wheel-udf/job.yml
/opt/wheel-udf/bin/pip install '/tmp/wheel_udf-0.3.0-py3-none-any.whl[s3]' 'pyspark==4.1.2' 'pyarrow<26'
/opt/wheel-udf/bin/python -m wheel_udf.spark.jars spark
/opt/wheel-udf/bin/pip uninstall --yes pyspark
