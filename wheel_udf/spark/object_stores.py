"""Small files in an object store (S3, Google Cloud Storage, Azure), without the JVM; see :mod:`wheel_udf.spark.files`.

Needs the package ``obstore`` (extra ``s3``). A file is created by a conditional put: two processes that create it at
the same time are told apart by the store, which Hadoop's S3A does not promise on every version.

Settings, each from the first place that has it::

    the running session's Hadoop configuration     fs.s3a.access.key, fs.s3a.bucket.<bucket>.access.key, ...
    without a session: spark-defaults.conf         spark.hadoop.fs.s3a.access.key, ...
    the environment                                AWS_ACCESS_KEY_ID, GOOGLE_..., AZURE_..., the machine's own role

:func:`store_options` maps them to the names of the Rust library ``object_store``, which delta-rs takes as well
(``storage_options``).

Caveats: the settings of a bucket are read once for a session. A file is one request, of at most 10 s unless more is
asked for. The profile files of the AWS command line and Hadoop's providers of credentials are not read. Without a
session the markers that Hadoop makes for empty folders stay when a folder is removed.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.common.errors import CheckpointError, ConfigError
from wheel_udf.common.extras import missing_package
from wheel_udf.common.secrets import remember_options
from wheel_udf.spark.connect_session import is_connect
from wheel_udf.spark.folder import PROBE, Folder, probe_name
from wheel_udf.spark.running import running_session

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import WriteableBuffer
    from obstore.store import ObjectStore
    from pyspark.sql import SparkSession

Setting = Callable[[str], str | None]
Settings = tuple[tuple[str, str], ...]
"""Settings of Hadoop, name and value."""

_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfs"}
_OF_S3: Final = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint.region": "aws_region",
}
_ENCRYPTION: Final = {"AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}
_REGION: Final = re.compile(r"s3[.-]([a-z]+(?:-[a-z]+)+-\d)\.")
_AMAZON: Final = re.compile(r"(?:https?://)?s3(?:[.-][a-z]+(?:-[a-z]+)+-\d)?\.amazonaws\.com/?")
"""The endpoints that follow from a region: not those of a VPC, of FIPS, of China."""
_ASKED_FOR: Final = (
    r"^(fs\.s3a\.(bucket\.[^.]+(\.[^.]+)*\.)?(access\.key|secret\.key|session\.token|endpoint|endpoint\.region"
    r"|aws\.credentials\.provider|connection\.ssl\.enabled|path\.style\.access|requester\.pays\.enabled"
    r"|encryption\.algorithm|encryption\.key|server-side-encryption-algorithm|server-side-encryption\.key)"
    r"|(fs\.gs|google\.cloud)\.auth\.service\.account\.json\.keyfile|fs\.azure\.account\.key.*)$"
)
_ADDRESS: Final = re.compile(r"://(localhost|\[|[\d.]+(:\d+)?/?$)")
LONGEST_S: Final = 10.0
"""How long a request may take, its repetitions included, unless less is asked for."""
_CONNECT: Final = timedelta(seconds=3)


def is_in_object_store(path: str) -> bool:
    """Whether a path is a URI of an object store."""
    return path.partition("://")[0] in _SCHEMES


def knows_settings() -> bool:
    """Whether the settings of a store are known without a running session: not if only Hadoop or spark-submit has
    them.
    """
    return not {"PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR"} & os.environ.keys()


def store_options(path: str, setting: Setting) -> dict[str, str]:
    """Returns the settings of the store of a path, as ``object_store`` and delta-rs name them.

    Args:
        path: A URI in an object store.
        setting: Returns a setting of Hadoop; None if it is not set.
    """
    scheme, _, rest = path.partition("://")
    authority = rest.partition("/")[0]
    return {"s3": _of_s3, "gs": _of_google, "abfs": _of_azure}[_SCHEMES[scheme]](authority, setting)


def _of_s3(bucket: str, setting: Setting) -> dict[str, str]:
    def of(name: str) -> str:
        return (setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}") or "").strip()

    options = {name: value for key, name in _OF_S3.items() if (value := of(key))}
    options |= _encryption(of("encryption.algorithm") or of("server-side-encryption-algorithm"), of)
    if of("requester.pays.enabled") == "true":
        options["aws_request_payer"] = "true"
    if of("aws.credentials.provider").endswith("AnonymousAWSCredentialsProvider"):
        options["aws_skip_signature"] = "true"
    endpoint = of("endpoint")
    if region := _REGION.search(endpoint):
        options.setdefault("aws_region", region[1])
    if endpoint and not _AMAZON.fullmatch(endpoint):
        if "://" not in endpoint:
            endpoint = f"{'http' if of('connection.ssl.enabled') == 'false' else 'https'}://{endpoint}"
        options["aws_endpoint"] = endpoint
        options.setdefault("aws_region", "us-east-1")
        if endpoint.startswith("http:"):
            options["aws_allow_http"] = "true"
        # As in Amazon's library, which Hadoop uses: an address has no name in front.
        if of("path.style.access") != "true" and not _ADDRESS.search(endpoint):
            options["aws_endpoint"] = endpoint.replace("://", f"://{bucket}.", 1)
            options["aws_virtual_hosted_style_request"] = "true"
    return options


def _encryption(algorithm: str, of: Callable[[str], str]) -> dict[str, str]:
    """The options for what Hadoop has its files encrypted with.

    Raises:
        ConfigError: By keys that only Hadoop has.
    """
    if not algorithm:
        return {}
    known = _ENCRYPTION.get(algorithm.upper())
    if known is None:
        raise ConfigError(
            "files of this encryption cannot be read and written without Hadoop",
            field="fs.s3a.encryption.algorithm",
            value=algorithm,
            rule=f"one of {', '.join(_ENCRYPTION)}",
            hint="let the bucket encrypt by default",
        )
    key = of("encryption.key") or of("server-side-encryption.key")
    return {"aws_server_side_encryption": known} | ({"aws_sse_kms_key_id": key} if key else {})


def _of_google(_bucket: str, setting: Setting) -> dict[str, str]:
    keyfile = setting("fs.gs.auth.service.account.json.keyfile") or setting(
        "google.cloud.auth.service.account.json.keyfile"
    )
    return {"google_service_account": keyfile} if keyfile else {}


def _of_azure(authority: str, setting: Setting) -> dict[str, str]:
    host = authority.rpartition("@")[2]
    key = setting(f"fs.azure.account.key.{host}") or setting("fs.azure.account.key")
    return {"azure_storage_account_key": key} if key else {}


def options_of(path: str) -> dict[str, str]:
    """Returns :func:`store_options` with the settings of the running session, or of the files that it would read."""
    session = running_session()
    if session is not None:
        from wheel_udf.spark.jvm import hadoop_configuration

        options = store_options(path, hadoop_configuration(session).get)
    else:
        from wheel_udf.spark.session import default_settings

        settings = default_settings()
        options = store_options(path, lambda name: settings.get(f"spark.hadoop.{name}"))
    remember_options(options)
    return options


def settings_of(spark: SparkSession) -> Settings:
    """The settings of a session that :func:`store_options` may ask for: for Python workers, which see no others.

    None over Spark Connect, where no files of the state are in a bucket.
    """
    if is_connect(spark):
        return ()
    from wheel_udf.spark.jvm import hadoop_configuration

    found = hadoop_configuration(spark).getValByRegex(_ASKED_FOR)
    return tuple(sorted((str(name), str(found[name])) for name in found))


def object_folder(
    path: str, options: Mapping[str, str] | None = None, *, request_s: float | None = None
) -> Folder:
    """The folder at a URI in an object store.

    Args:
        path: The URI.
        options: Settings by :func:`options_of`, for a process without a session; None: look them up.
        request_s: How long a request may take; default is :data:`LONGEST_S`.

    Raises:
        CheckpointError: Its settings are those of a Spark session, and none is running.
        ConfigError: The package ``obstore`` is not installed.
    """
    missing = missing_package("obstore", "s3", path)
    if missing is not None:
        raise missing
    scheme, _, rest = path.partition("://")
    authority, _, key = rest.partition("/")
    root = f"{scheme}://{authority}"
    longest_s = LONGEST_S if request_s is None else request_s
    if options is not None:
        return folder_in(_store_with(root, tuple(sorted(options.items())), longest_s), key.strip("/"), root)
    session = running_session()
    if session is None and not knows_settings():
        raise CheckpointError("this path needs a running Spark session", field="checkpoint", value=path)
    application = None if session is None else str(session.sparkContext.applicationId)
    return folder_in(_store(root, application, longest_s), key.strip("/"), root)


def folder_in(store: ObjectStore, key: str, root: str) -> Folder:
    """The folder in a store: the keys that begin with its name and a slash.

    Args:
        store: The store.
        key: The name of the folder; empty for all of the store.
        root: The URI of the store, for messages.
    """
    return _ObjectFolder(store, key, root)


@lru_cache(maxsize=32)
def _store(root: str, _of_application: str | None, longest_s: float) -> ObjectStore:
    return _store_with(root, tuple(sorted(options_of(root).items())), longest_s)


@lru_cache(maxsize=32)
def _store_with(root: str, given: tuple[tuple[str, str], ...], longest_s: float) -> ObjectStore:
    from obstore.store import from_url

    options = dict(given)
    allow_http = options.pop("aws_allow_http", os.environ.get("AWS_ALLOW_HTTP", "false")) == "true"
    longest = timedelta(seconds=longest_s)
    times: Any = {"timeout": longest, "connect_timeout": min(longest, _CONNECT), "allow_http": allow_http}
    tries: Any = {"max_retries": 3, "retry_timeout": longest}
    config: Any = options
    return from_url(root, config=config, client_options=times, retry_config=tries)


def _remove_markers(session: SparkSession, folder: str) -> None:
    """Removes what is left of a folder without files: empty objects that Hadoop has put where it made folders, and what
    some servers keep of them. Their names end with a slash: `obstore` has no such names.
    """
    from wheel_udf.spark.jvm import hadoop_configuration, java_class

    place = java_class(session, "org.apache.hadoop.fs.Path")(folder)
    system = place.getFileSystem(hadoop_configuration(session))

    def remove(at: Any) -> None:
        for status in system.listStatus(at):
            if status.isDirectory():
                remove(status.getPath())
        system.delete(at, True)  # noqa: FBT003  # py4j has no keywords

    if system.exists(place):
        remove(place)


class _ObjectFile(io.RawIOBase):
    """A file, of which each read is a request for just that part."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        import obstore

        self._store, self._key, self._place = store, key, 0
        self._size = int(obstore.head(store, key)["size"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def readinto(self, buffer: WriteableBuffer) -> int:
        import obstore

        with memoryview(buffer) as into:
            length = max(0, min(len(into), self._size - self._place))
            if length:
                into[:length] = obstore.get_range(
                    self._store, self._key, start=self._place, length=length
                ).to_bytes()
        self._place += length
        return length


class _ObjectFolder:
    def __init__(self, store: ObjectStore, key: str, root: str) -> None:
        self._store, self._key, self._root = store, key, root

    def name(self, name: str = "") -> str:
        return f"{self._root}/{self._at(name)}"

    def _at(self, name: str) -> str:
        return "/".join(part for part in (self._key, name) if part)

    def names(self, folder: str = "") -> list[str]:
        import obstore

        at = self._at(folder)
        found = obstore.list_with_delimiter(self._store, at)
        folders = [each for each in found["common_prefixes"] if self._holds_something(each)]
        paths = [*(each["path"] for each in found["objects"]), *folders]
        return [path.rpartition("/")[2] for path in paths if path != at]

    def _holds_something(self, folder: str) -> bool:
        """Whether a file is below a folder: Hadoop leaves empty objects where it has made folders, and some servers
        list a folder that was emptied.
        """
        import obstore

        return any(each["size"] for chunk in obstore.list(self._store, folder) for each in chunk)

    def read(self, name: str) -> bytes | None:
        import obstore

        with suppress(FileNotFoundError):
            return obstore.get(self._store, self._at(name)).bytes().to_bytes()
        return None

    def open(self, name: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.PythonFile(_ObjectFile(self._store, self._at(name)), "r")

    def replace(self, name: str, content: bytes) -> None:
        import obstore

        obstore.put(self._store, self._at(name), content, use_multipart=False)

    def create(self, name: str, content: bytes, *, flush: bool = True) -> bool:  # noqa: ARG002  # as on a local disk
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self._store, self._at(name), content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        import obstore

        at = self._at(name)
        below = [each["path"] for chunk in obstore.list(self._store, at) for each in chunk]
        self._delete(below or [at])
        session = running_session()
        if session is not None:
            _remove_markers(session, self.name(name))

    def remove_files(self, folder: str, names: Sequence[str]) -> None:
        self._delete([self._at(f"{folder}/{name}".lstrip("/")) for name in names])

    def _delete(self, keys: list[str]) -> None:
        import obstore

        with suppress(FileNotFoundError):
            obstore.delete(self._store, keys)

    def unwritable_reason(self) -> str | None:
        import obstore
        from obstore.exceptions import BaseError

        probe = self._at(probe_name())
        try:
            obstore.put(self._store, probe, PROBE, use_multipart=False)
            obstore.delete(self._store, probe)
        except (BaseError, OSError) as fault:
            return str(fault).partition("\n")[0]
        return None
