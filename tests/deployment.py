"""The files of ``conf/deploy`` as tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.documents import ROOT

DEPLOY = ROOT / "conf" / "deploy"
FILES = sorted(path.relative_to(ROOT).as_posix() for path in DEPLOY.rglob("*") if path.is_file())


def text_of(name: str) -> str:
    """The text of a file of ``conf/deploy``."""
    return (DEPLOY / name).read_text(encoding="utf-8")


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return [each for each in yaml.safe_load_all(text_of(name)) if each]


def document(name: str, kind: str) -> dict[str, Any]:
    """The Kubernetes object of a kind."""
    (found,) = [each for each in documents(name) if each["kind"] == kind]
    return found


def parsed(name: str) -> Any:
    """A JSON file."""
    return json.loads(text_of(name))


def lines_of(text: str) -> dict[str, str]:
    """Settings in the form of ``spark-defaults.conf``: ``key value`` or ``key=value``."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [
        line.replace("=", " ", 1).split(None, 1) if "=" in line.split(None, 1)[0] else line.split(None, 1)
        for line in lines
        if line and not line.startswith("#")
    ]
    return dict(pairs)


def bundle_job(target: str) -> dict[str, Any]:
    """The job of a target of the Databricks bundle."""
    (bundle,) = documents("databricks/databricks.yml")
    (job,) = bundle["targets"][target]["resources"]["jobs"].values()
    return dict(job)


def settings() -> dict[str, dict[str, str]]:
    """The Spark settings of each file that has all that a job needs."""
    (emr,) = parsed("emr/configurations.json")
    serverless = parsed("emr-serverless/start-job-run.json")["configurationOverrides"]
    (cluster,) = bundle_job("classic")["job_clusters"]
    return {
        "spark.properties": lines_of(text_of("spark.properties")),
        "kubernetes/spark-application.yaml": document(
            "kubernetes/spark-application.yaml", "SparkApplication"
        )["spec"]["sparkConf"],
        "emr/configurations.json": emr["Properties"],
        "emr-serverless/start-job-run.json": serverless["applicationConfiguration"][0]["properties"],
        "databricks/databricks.yml": cluster["new_cluster"]["spark_conf"],
    }


def driver_settings() -> dict[str, str]:
    """The Spark settings of the pod without an operator; the package adds its own."""
    return lines_of(document("kubernetes/deployment.yaml", "ConfigMap")["data"]["spark-defaults.conf"])


def config_of(name: str, folder: Path) -> Path:
    """Writes the config that a manifest contains, and returns its path."""
    path = folder / "job.yml"
    path.write_text(document(name, "ConfigMap")["data"]["job.yml"], encoding="utf-8")
    return path
