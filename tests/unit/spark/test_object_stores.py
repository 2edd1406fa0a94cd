"""Folders in an object store, on obstore's own stores: what a folder promises, and the settings of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore, MemoryStore

from wheel_udf.common import extras
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.secrets import forget_at_end, hide, in_short
from wheel_udf.spark import object_stores, running
from wheel_udf.spark.files import needs_session, open_folder
from wheel_udf.spark.folder import Folder
from wheel_udf.spark.object_stores import (
    folder_in,
    is_in_object_store,
    object_folder,
    options_of,
    store_options,
)


@pytest.fixture(params=["memory", "local"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    store: Any = MemoryStore() if request.param == "memory" else LocalStore(tmp_path)
    return folder_in(store, "jobs/one", "s3a://bucket")


def test_a_file_is_read_in_parts_and_one_that_is_not_there_is_missed(folder: Folder) -> None:
    table = pa.table({"id": range(100_000), "value": ["x" * 20] * 100_000})
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    folder.create("level=0/part.parquet", content.getvalue().to_pybytes())
    with pq.ParquetFile(folder.open("level=0/part.parquet"), pre_buffer=True) as file:
        assert file.read(columns=["id"]) == table.select(["id"])
        assert pa.Table.from_batches(file.iter_batches(60_000)) == table
    with pytest.raises(FileNotFoundError):
        folder.open("level=0/other.parquet")


def test_a_file_is_created_once_and_replaced_as_often_as_wanted(folder: Folder) -> None:
    assert folder.create("wheel.lease/1", b"first")
    assert not folder.create("wheel.lease/1", b"second")
    assert folder.read("wheel.lease/1") == b"first"
    folder.replace("wheel.lease/1", b"third")
    assert folder.read("wheel.lease/1") == b"third"
    assert folder.read("wheel.lease/2") is None
    assert folder.read("wheel.lease") is None


def test_names_are_those_of_files_and_folders_and_none_of_a_folder_that_is_missing(folder: Folder) -> None:
    assert folder.names() == []
    for name in ("wheel.json", "offsets/0", "offsets/1", "sources/0/0"):
        folder.replace(name, b"x")
    assert sorted(folder.names()) == ["offsets", "sources", "wheel.json"]
    assert sorted(folder.names("offsets")) == ["0", "1"]
    assert folder.names("commits") == []
    assert folder.name("offsets") == "s3a://bucket/jobs/one/offsets"


def test_a_folder_is_removed_with_its_content_and_nothing_beside_it(folder: Folder) -> None:
    for name in ("acts/0.json", "acts/rows/part", "acts-of-others", "wheel.json"):
        folder.replace(name, b"x")
    folder.remove("acts")
    folder.remove("missing")
    assert folder.read("acts/0.json") is None
    assert folder.names("acts/rows") == []
    folder.remove("wheel.json")
    assert folder.read("wheel.json") is None
    assert folder.read("acts-of-others") == b"x"


def test_files_of_a_folder_are_removed_by_their_names_those_that_are_missing_too(folder: Folder) -> None:
    for name in ("1", "2", "3"):
        folder.replace(f"wheel.lease/{name}", b"x")
    folder.remove_files("wheel.lease", ["1", "2", "7"])
    assert folder.names("wheel.lease") == ["3"]


def test_a_folder_that_can_be_written_says_so_and_keeps_no_probe(folder: Folder) -> None:
    assert folder.unwritable_reason() is None
    assert folder.names() == []


# --- settings -------------------------------------------------------------------------------------

HADOOP = {
    "fs.s3a.access.key": "all",
    "fs.s3a.secret.key": "secret",
    "fs.s3a.bucket.mine.access.key": "of mine",
    "fs.s3a.endpoint": "127.0.0.1:9000",
    "fs.s3a.connection.ssl.enabled": "false",
    "fs.s3a.path.style.access": "true",
    "fs.azure.account.key.here.dfs.core.windows.net": "a key",
    "fs.gs.auth.service.account.json.keyfile": "/keys/gs.json",
}


def test_the_settings_of_a_bucket_win_over_those_of_all_and_an_endpoint_gets_its_scheme() -> None:
    assert store_options("s3a://mine/jobs", HADOOP.get) == {
        "aws_access_key_id": "of mine",
        "aws_secret_access_key": "secret",
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    assert store_options("s3a://other/jobs", HADOOP.get)["aws_access_key_id"] == "all"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, {"aws_region": "eu-west-1"}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        ({"fs.s3a.endpoint": "https://s3.us-gov-west-1.amazonaws.com"}, {"aws_region": "us-gov-west-1"}),
        (
            {"fs.s3a.endpoint": "s3.cn-north-1.amazonaws.com.cn", "fs.s3a.path.style.access": "true"},
            {"aws_endpoint": "https://s3.cn-north-1.amazonaws.com.cn", "aws_region": "cn-north-1"},
        ),
        (
            {
                "fs.s3a.endpoint": "https://bucket.vpce-1a.s3.eu-west-1.vpce.amazonaws.com",
                "fs.s3a.path.style.access": "true",
            },
            {
                "aws_endpoint": "https://bucket.vpce-1a.s3.eu-west-1.vpce.amazonaws.com",
                "aws_region": "eu-west-1",
            },
        ),
        ({"fs.s3a.endpoint.region": "eu-north-1"}, {"aws_region": "eu-north-1"}),
        (
            {"fs.s3a.endpoint": "https://objects.example.com", "fs.s3a.path.style.access": "false"},
            {
                "aws_endpoint": "https://mine.objects.example.com",
                "aws_region": "us-east-1",
                "aws_virtual_hosted_style_request": "true",
            },
        ),
        (
            {"fs.s3a.endpoint": "http://localhost:8333"},
            {"aws_endpoint": "http://localhost:8333", "aws_region": "us-east-1", "aws_allow_http": "true"},
        ),
        (
            {
                "fs.s3a.encryption.algorithm": "SSE-KMS",
                "fs.s3a.bucket.mine.encryption.key": "arn:aws:kms:key",
            },
            {"aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "arn:aws:kms:key"},
        ),
        ({"fs.s3a.requester.pays.enabled": "true"}, {"aws_request_payer": "true"}),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"aws_skip_signature": "true"},
        ),
    ],
)
def test_settings_of_s3a_by_the_names_of_the_library(
    settings: dict[str, str], expected: dict[str, str]
) -> None:
    assert store_options("s3a://mine/x", settings.get) == expected


def test_keys_of_a_store_are_hidden_in_all_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.hadoop.fs.s3a.secret.key a-very-secret-key\nspark.hadoop.fs.s3a.session.token a-token-of-now\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with forget_at_end():
        options_of("s3a://bucket/x")
        fault = OSError("denied: a-token-of-now\n<Error>a-very-secret-key</Error>")
        assert in_short(fault) == "denied: ***"
        assert "a-very-secret-key" not in hide(str(fault))


def test_an_encryption_whose_keys_only_hadoop_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fs\.s3a\.encryption\.algorithm = 'SSE-C'; rule: one of AES256"):
        store_options("s3a://mine/x", {"fs.s3a.encryption.algorithm": "SSE-C"}.get)


def test_the_library_knows_each_option() -> None:
    settings = {
        "fs.s3a.access.key": "a",
        "fs.s3a.secret.key": "b",
        "fs.s3a.session.token": "c",
        "fs.s3a.endpoint": "https://objects.example.com",
        "fs.s3a.encryption.algorithm": "SSE-KMS",
        "fs.s3a.encryption.key": "key",
        "fs.s3a.requester.pays.enabled": "true",
    }
    folder = object_folder("s3a://mine/x", store_options("s3a://mine/x", settings.get), request_s=1)
    assert folder.name("y") == "s3a://mine/x/y"


def test_settings_of_the_other_stores() -> None:
    assert store_options("gs://mine/x", HADOOP.get) == {"google_service_account": "/keys/gs.json"}
    assert store_options("abfss://box@here.dfs.core.windows.net/x", HADOOP.get) == {
        "azure_storage_account_key": "a key"
    }


def test_without_a_session_the_settings_are_those_of_the_users_spark_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.hadoop.fs.s3a.access.key  theirs\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(running, "sys", type("NoSpark", (), {"modules": {}}))
    assert object_stores.options_of("s3a://bucket/job") == {"aws_access_key_id": "theirs"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3a://bucket/job", True),
        ("s3://bucket/job", True),
        ("gs://bucket/job", True),
        ("abfss://box@here.dfs.core.windows.net/job", True),
        ("hdfs://name/job", False),
        ("/data/s3a/job", False),
        ("file:///data/job", False),
    ],
)
def test_which_paths_are_in_an_object_store(path: str, *, expected: bool) -> None:
    assert is_in_object_store(path) is expected


def test_which_paths_wait_for_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert [needs_session(path) for path in ("/data/job", "s3a://b/job", "hdfs://n/job")] == [
        False,
        False,
        True,
    ]
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert [needs_session(path) for path in ("/data/job", "s3a://b/job", "hdfs://n/job")] == [
        False,
        True,
        True,
    ]


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError) as error:
        open_folder("s3a://bucket/job")
    assert str(error.value) == (
        "the package obstore is not installed: s3a://bucket/job; hint: pip install 'wheel-udf[s3]'"
    )


def test_folders_of_which_only_hadoops_empty_objects_are_left_are_not_there(folder: Folder) -> None:
    # `forget` emptied a checkpoint and began it anew in the same place: these names counted as a foreign checkpoint.
    for name in ("state/0/1", "acts/rows"):
        folder.replace(name, b"")
    folder.replace("offsets/0", b"v1")

    assert folder.names() == ["offsets"]
