"""The files of conf/deploy are valid by the schemas of their platforms. None of the platforms is asked."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, is_typeddict

import pytest
import typing_extensions
import yaml
from databricks.sdk.service.jobs import JobSettings
from jsonschema import Draft202012Validator
from kubeflow_spark_api.models import SparkV1beta2SparkApplication
from pydantic import ConfigDict, TypeAdapter

from tests.deployment import DEPLOY, FILES, ROOT, bundle_job, document, documents, parsed

KUBERNETES = json.loads((Path(__file__).parent / "kubernetes.schema.json").read_text(encoding="utf-8"))


def aws_type(monkeypatch: pytest.MonkeyPatch, package: str, name: str) -> TypeAdapter[Any]:
    """What an operation of AWS takes, by the types that are made from AWS's own description. The package itself needs
    the SDK, its types do not. An unknown member is an error.
    """
    spec = importlib.util.find_spec(package)
    assert spec is not None
    stand_in = types.ModuleType(package)
    stand_in.__path__ = list(spec.submodule_search_locations or [])
    monkeypatch.setitem(sys.modules, package, stand_in)
    declared = vars(importlib.import_module(f"{package}.type_defs"))
    for each in declared.values():
        if is_typeddict(each) or typing_extensions.is_typeddict(each):
            each.__pydantic_config__ = ConfigDict(extra="forbid")
    return TypeAdapter(declared[name])


def kubernetes_faults(found: dict[str, Any]) -> list[str]:
    schema = {"$defs": KUBERNETES["$defs"], **KUBERNETES["kinds"][f"{found['apiVersion']}/{found['kind']}"]}
    return [error.message for error in Draft202012Validator(schema).iter_errors(found)]


@pytest.mark.parametrize("name", ["deployment", "spark-application"])
def test_the_manifests_are_objects_of_kubernetes(name: str) -> None:
    objects = [each for each in documents(f"kubernetes/{name}.yaml") if each["kind"] != "SparkApplication"]

    assert [fault for each in objects for fault in kubernetes_faults(each)] == []


def test_a_manifest_with_a_wrong_member_is_found() -> None:
    deployment = document("kubernetes/deployment.yaml", "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}

    assert kubernetes_faults(deployment) == [
        "Additional properties are not allowed ('readynessProbe' was unexpected)"
    ]


def test_the_spark_application_is_one_of_the_operator() -> None:
    """Its models ignore what they do not know; what comes back then lacks it."""
    manifest = document("kubernetes/spark-application.yaml", "SparkApplication")
    application = SparkV1beta2SparkApplication.from_dict(manifest)

    assert application is not None
    assert application.to_dict() == manifest


def test_one_driver_runs_at_a_time_and_has_time_to_end() -> None:
    deployment = document("kubernetes/deployment.yaml", "Deployment")["spec"]

    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    assert deployment["template"]["spec"]["terminationGracePeriodSeconds"] > 20


@pytest.mark.parametrize("target", ["classic", "serverless"])
def test_the_jobs_of_the_bundle_are_jobs_of_databricks(target: str) -> None:
    """The models of its API ignore what they do not know, too."""
    job = bundle_job(target)

    assert JobSettings.from_dict(job).as_dict() == job
    assert job["max_concurrent_runs"] == 1


def test_a_job_with_a_member_or_a_value_that_databricks_does_not_know_is_found() -> None:
    job = bundle_job("classic")
    wrong = job | {"cluster": {}, "continuous": {"pause_status": "RUNNING"}}

    assert JobSettings.from_dict(wrong).as_dict() == job | {"continuous": {}}


def test_the_bundle_takes_files_that_exist_or_that_are_made() -> None:
    (bundle,) = documents("databricks/databricks.yml")
    folder = DEPLOY / "databricks"
    classic, serverless = bundle_job("classic"), bundle_job("serverless")
    (task,) = classic["tasks"]
    (environment,) = serverless["environments"]
    (requirements,) = environment["spec"]["dependencies"]

    assert (folder / bundle["sync"]["paths"][0]).resolve() == ROOT
    assert (folder / task["spark_python_task"]["python_file"]).resolve() == ROOT / "jobs/delay_scheduler.py"
    assert (folder / requirements.removeprefix("-r ")).resolve() == ROOT / "conf/managed-spark.txt"


def test_the_configuration_of_emr_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = aws_type(monkeypatch, "mypy_boto3_emr", "ConfigurationTypeDef")

    for each in parsed("emr/configurations.json"):
        expected.validate_python(each)


def test_the_step_of_emr_has_the_members_of_the_command_line() -> None:
    """``aws emr add-steps`` takes another form than the API, which no package describes."""
    (step,) = parsed("emr/steps.json")

    assert step.keys() <= {"Type", "Name", "ActionOnFailure", "Jar", "Args"}
    assert (step["Type"], step["Jar"], step["Args"][0]) == (
        "CUSTOM_JAR",
        "command-runner.jar",
        "spark-submit",
    )


def test_the_run_of_emr_serverless_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = aws_type(monkeypatch, "mypy_boto3_emr_serverless", "StartJobRunRequestTypeDef")
    run = parsed("emr-serverless/start-job-run.json")

    expected.validate_python(run | {"clientToken": "the command line makes it"})
    with pytest.raises(ValueError, match="jobDrivr"):
        expected.validate_python(run | {"clientToken": "", "jobDrivr": {}})


def test_the_definition_of_fabric_has_the_members_of_its_documentation() -> None:
    assert parsed("fabric/SparkJobDefinitionV1.json").keys() == {
        "executableFile",
        "defaultLakehouseArtifactId",
        "mainClass",
        "additionalLakehouseIds",
        "retryPolicy",
        "commandLineArguments",
        "additionalLibraryUris",
        "language",
        "environmentArtifactId",
    }


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".sh")])
def test_a_script_is_one_of_bash(name: str) -> None:
    assert (
        subprocess.run(["bash", "-n", ROOT / name], capture_output=True, text=True, check=False).stderr == ""
    )
    assert "set -euo pipefail" in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".yaml", ".yml", ".json"))])
def test_a_file_has_no_key_twice(name: str) -> None:
    """PyYAML and json take the last one without a word."""

    def once(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            return once(
                [
                    (self.construct_object(key), self.construct_object(value, deep=deep))
                    for key, value in node.value
                ]
            )

    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        json.loads(text, object_pairs_hook=once)
    else:
        list(yaml.load_all(text, Loader=Loader))
