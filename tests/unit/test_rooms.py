"""The structure of the package: rooms import upwards only, executors load no Spark, one room reads a wall clock, one
touches Spark's private API.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wheel_udf

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "wheel_udf"

# From the ground up: a room imports from the rooms before it in this list, and from itself.
ROOMS = (
    "common",
    "recurrence",
    "shard",
    "wheel",
    "policies",
    "purgatory",
    "spark",
    "control",
    "kafka",
    "tables",
    "checkpoint",
    "commands",
    "client",
    "stream",
    "sinks",
    "punctual",
    "delivery",
    "connect",
    "store",
    "pending",
    "tiered",
    "transfer",
    "replay",
    "metrics",
    "api",
    "page",
    # Before job: `wheel-udf broker` starts the broker of the tests.
    "testing",
    "job",
)

# What Spark's Python workers load: numpy, pandas, pyarrow and the standard library. pyspark only inside functions.
ON_EXECUTORS = (
    "wheel_udf.common.arrays",
    "wheel_udf.common.errors",
    "wheel_udf.recurrence.occurrences",
    "wheel_udf.wheel.step",
    "wheel_udf.commands.command_reader",
    "wheel_udf.commands.operation_reader",
    "wheel_udf.policies.limits",
    "wheel_udf.shard.holdings",
    "wheel_udf.purgatory.step",
    "wheel_udf.purgatory.inspect",
    "wheel_udf.control.board",
    "wheel_udf.commands.in_turn",
    "wheel_udf.commands.record_reader",
    "wheel_udf.commands.delay_reader",
    "wheel_udf.stream.sharding",
    "wheel_udf.stream.sampling",
    "wheel_udf.stream.worker",
    "wheel_udf.stream.wheel_worker",
    "wheel_udf.stream.watch_worker",
    "wheel_udf.stream.seed_worker",
    "wheel_udf.purgatory.seed",
    "wheel_udf.store.layout",
    "wheel_udf.sinks.http_sender",
    "wheel_udf.page.shard_next",
    "wheel_udf.page.shard_sums",
)
LIBRARIES_ON_EXECUTORS = {"numpy", "pandas", "pyarrow"}
PURE = ("recurrence", "shard", "wheel", "policies", "purgatory")
# They read rules, inside functions: who has no such rules needs no such package.
LIBRARIES_OF_RULES = {"cronsim", "dateutil"}

# Who reads a wall clock. Nothing else may: which rows fire when is decided by the clock that the batch was planned
# with.
WALL_CLOCK_READERS = {"wheel_udf.control.wall"}
_CLOCK_FUNCTIONS = {
    "time": {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "clock_gettime",
        "clock_gettime_ns",
        "localtime",
        "gmtime",
        "sleep",
    },
}
_CLOCK_METHODS = {"now", "utcnow", "today"}


def _name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


SOURCES = {
    _name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
}
MODULES = sorted(SOURCES)


def _room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _imports(node: ast.AST, *, at_import_only: bool = False) -> Iterator[tuple[str, str | None]]:
    """(module, name) of each import below a node; a plain ``import`` has no name. Either all of them, or those that
    run on import.
    """
    for child in ast.iter_child_nodes(node):
        if at_import_only and (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(child)
        ):
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, None) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from ((child.module or "", alias.name) for alias in child.names)
        yield from _imports(child, at_import_only=at_import_only)


def test_every_module_lives_in_a_room() -> None:
    outside = {module for module in MODULES if _room(module) not in ROOMS}

    assert outside == {"wheel_udf", "wheel_udf.__main__"} & set(MODULES)
    assert sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()) == sorted(ROOMS)


@pytest.mark.parametrize("module", [module for module in MODULES if _room(module) in ROOMS])
def test_a_room_imports_only_from_rooms_before_it(module: str) -> None:
    room = _room(module)
    assert room is not None
    allowed = ROOMS[: ROOMS.index(room) + 1]
    imported = {_room(name) for name, _ in _imports(SOURCES[module]) if name.startswith("wheel_udf.")}

    assert imported - set(allowed) == set()


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "connect"])
def test_a_room_exports_nothing_so_that_callers_import_the_module_that_defines_a_name(room: str) -> None:
    assert [type(node).__name__ for node in SOURCES[f"wheel_udf.{room}"].body] == ["Expr"], (
        "the docstring alone"
    )


def test_the_room_of_spark_connect_exports_its_public_names() -> None:
    from wheel_udf import connect

    exported = {name for _, name in _imports(SOURCES["wheel_udf.connect"])}
    assert exported == {"OutboxReport", "deliver_outbox", "schedule", "to_outbox"}
    assert exported <= {*wheel_udf.__dir__()}
    assert {name for name in exported if getattr(connect, name) is not getattr(wheel_udf, name)} == set()


# A client of Spark Connect has neither: tests/connect runs one.
_OF_THE_JVM = {"py4j", "delta", "deltalake", "pydantic"}


def _loaded_by(module: str) -> set[str]:
    """What is imported when a module of the package is, by way of the package's own modules."""
    seen: set[str] = set()
    left = {module}
    while left:
        name = left.pop()
        seen.add(name)
        found = {f"{each}.{what}" if f"{each}.{what}" in SOURCES else each for each, what in _imports(SOURCES[name], at_import_only=True)}  # fmt: skip
        left |= (found & SOURCES.keys()) - seen
        seen |= found - SOURCES.keys()
    return seen


@pytest.mark.parametrize(
    "module",
    ["wheel_udf", "wheel_udf.connect", "wheel_udf.stream.schedule_operator", "wheel_udf.stream.outputs"],
)
def test_a_client_of_spark_connect_loads_nothing_that_needs_the_jvm(module: str) -> None:
    assert {name.split(".")[0] for name in _loaded_by(module)} & _OF_THE_JVM == set()


def test_the_package_alone_loads_neither_spark_nor_py4j() -> None:
    program = "import sys, wheel_udf; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )

    assert not (_OF_THE_JVM | {"pyspark", "numpy"}) & set(loaded.stdout.split())


def test_the_public_names_are_there_and_listed_once() -> None:
    listed = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    names = sorted(name for _, name in _imports(listed) if name is not None)

    assert wheel_udf.__dir__() == names == sorted(set(names))
    for name in names:
        assert getattr(wheel_udf, name) is not None


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module: set(_imported_on_import(module)) for module in MODULES}
    left = dict(graph)
    while leaves := {module for module, needs in left.items() if not needs & left.keys()}:
        left = {module: needs for module, needs in left.items() if module not in leaves}

    assert sorted(left) == []


def _imported_on_import(module: str) -> Iterator[str]:
    for name, what in _imports(SOURCES[module], at_import_only=True):
        found = f"{name}.{what}" if f"{name}.{what}" in SOURCES else name
        if found in SOURCES and found != module:
            yield found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_shows_a_picture(room: str) -> None:
    text = ast.get_docstring(SOURCES[f"wheel_udf.{room}"]) or ""

    assert "::\n" in text, "the picture"
    assert "May import" in text, "which rooms and libraries it may import"


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ("common", "testing", "job")])
def test_a_room_lists_the_rooms_that_it_imports(room: str) -> None:
    text = ast.get_docstring(SOURCES[f"wheel_udf.{room}"]) or ""
    listed = re.search(r"May import: ([\w, \n]+)", text)
    imported = {
        _room(name)
        for module in MODULES
        if _room(module) == room
        for name, _ in _imports(SOURCES[module])
        if name.startswith("wheel_udf.")
    }

    assert listed is not None
    assert set(re.findall(r"\w+", listed[1])) & set(ROOMS) == imported - {room} | {"common"}


@pytest.mark.parametrize("module", [module for module in MODULES if _room(module) in PURE])
def test_the_wheel_and_the_purgatory_import_no_spark(module: str) -> None:
    names = {name.split(".")[0] for name, _ in _imports(SOURCES[module])}

    allowed = LIBRARIES_ON_EXECUTORS | (LIBRARIES_OF_RULES if _room(module) == "recurrence" else set())
    assert names - allowed - sys.stdlib_module_names - {"wheel_udf"} == set()


def test_what_executors_load_imports_three_libraries_at_most() -> None:
    program = (
        f"import sys; before = set(sys.modules); import {', '.join(ON_EXECUTORS)}; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )

    assert not {"pyspark", "pydantic", "py4j", "yaml", "delta", "cronsim"} & set(loaded.stdout.split())


def test_a_producer_and_a_consumer_of_kafka_load_no_spark() -> None:
    program = (
        "import sys; from wheel_udf.client import kafka; from wheel_udf.client.deliveries import Deliveries; kafka.schedule('a', delay='1 s'); "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )

    assert not {"pyspark", "pydantic", "py4j", "yaml", "numpy", "confluent_kafka"} & set(
        loaded.stdout.split()
    )


def test_nothing_but_tests_and_demos_imports_the_test_helpers() -> None:
    users = [
        module
        for module in MODULES
        if _room(module) != "testing"
        and any(name.startswith("wheel_udf.testing") for name, _ in _imports(SOURCES[module]))
    ]

    assert users == ["wheel_udf.job.broker"]


def _clock_reads(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _CLOCK_FUNCTIONS:
            yield from (alias.name for alias in node.names if alias.name in _CLOCK_FUNCTIONS[node.module])
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in _CLOCK_METHODS or node.attr in _CLOCK_FUNCTIONS.get(owner, set()):
                yield f"{ast.unparse(node)} in line {node.lineno}"


@pytest.mark.parametrize("module", [each for each in MODULES if each not in WALL_CLOCK_READERS])
def test_the_clock_alone_reads_a_wall_clock(module: str) -> None:
    assert list(_clock_reads(SOURCES[module])) == []


# Attributes that hold py4j objects, and those of pyspark's classes that are no part of its API.
_PRIVATE = re.compile(
    r"_jvm|_j(?:df|c|sc|sq|sqm|rdd|dt|map|schema|catalog|conf|write|writer|reader|gateway)|_jspark\w*|_jvm_\w+|_sc|_gateway"
    r"|_instantiatedSession|_active_spark_context|_ensure_initialized"
)
_FOREIGN_NAMES = re.compile(r"org\.apache\.|io\.delta\.|py4j|com\.databricks")
_FOREIGN_MODULES = re.compile(
    r"py4j|pyspark\.sql\.classic|pyspark\.java_gateway|pyspark\.core|delta\.(?!tables|exceptions)"
)


def _docstrings(tree: ast.AST) -> set[int]:
    """The ids of nodes that are docstrings: of modules, classes and functions, and texts below a name."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _private_uses(tree: ast.AST) -> Iterator[str]:
    texts = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _PRIVATE.fullmatch(node.attr):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            if _FOREIGN_NAMES.search(node.value):
                yield f"line {node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Import):
            yield from (
                f"line {node.lineno}: {name.name}" for name in node.names if _FOREIGN_MODULES.match(name.name)
            )
        elif isinstance(node, ast.ImportFrom) and _FOREIGN_MODULES.match(node.module or ""):
            yield f"line {node.lineno}: {node.module}"


@pytest.mark.parametrize("module", [module for module in MODULES if _room(module) not in ("spark", "tables")])
def test_only_two_rooms_name_private_api(module: str) -> None:
    assert list(_private_uses(SOURCES[module])) == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("jobs/**/*.py")), ids=lambda path: path.name)
def test_jobs_name_no_private_api(path: Path) -> None:
    assert list(_private_uses(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "line",
    [
        "frame._jdf.queryExecution()",
        "spark._jvm.java.lang.System",
        "spark._sc",
        "column._jc",
        "spark._jsparkSession",
        "SparkSession._instantiatedSession",
        "name = 'org.apache.hadoop.fs.Path'",
        "name = f'io.delta.{kind}'",
        "from py4j.protocol import Py4JError",
        "import pyspark.sql.classic.dataframe",
        "logging.getLogger('py4j.clientserver')",
    ],
)
def test_what_counts_as_private_api(line: str) -> None:
    assert list(_private_uses(ast.parse(line))) != []


def test_every_public_name_is_what_it_is_called() -> None:
    import wheel_udf

    assert {name for name in wheel_udf.__dir__() if getattr(wheel_udf, name).__name__ != name} == set()


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    import wheel_udf

    with pytest.raises(AttributeError, match="no attribute 'wheal'"):
        wheel_udf.wheal  # noqa: B018  # the access is what is tested


# ---- tests name no private member of the package -------------------------------------------------

_CANARIES = "upgrade"
"""These tests name what is private to Spark and Delta, and where the package does."""


def _is_private(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"_(?!_)\w*[A-Za-z]\w*", name) is not None


def _private_names(tree: ast.AST) -> Iterator[str]:
    """What a module of the package defines under a private name: functions, classes, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


_OURS = {name for tree in SOURCES.values() for name in _private_names(tree) if _is_private(name)}


def _names_of_ours(tree: ast.AST, ours: set[str]) -> Iterator[str]:
    """Private names of the package in a test: in an import, after a dot, or as the text that a patch is given. What
    follows ``self``, ``cls`` or ``super()`` is the test's own.
    """
    for node in ast.walk(tree):
        found: list[object] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wheel_udf"):
            found = [alias.name for alias in node.names if _is_private(alias.name)]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "super()"):
            found = [node.attr]
        elif isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            found = [node.args[1].value]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.findall(r"^(?:wheel_udf)?[\w.]*\.(_\w+)$", node.value)
        yield from (f"{name} in line {node.lineno}" for name in found if name in ours)


def test_tests_name_no_private_member_of_the_package() -> None:
    tests = ROOT / "tests"
    found = {
        str(path.relative_to(tests)): names
        for path in tests.rglob("*.py")
        if path.relative_to(tests).parts[0] != _CANARIES
        and (names := list(_names_of_ours(ast.parse(path.read_text(encoding="utf-8")), _OURS)))
    }

    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "from wheel_udf.job.loader import _yaml",
        "loader._yaml('a: 1')",
        "monkeypatch.setattr(loader, '_yaml', None)",
        "patch('wheel_udf.job.loader._yaml')",
        "patch(f'{job}.loader._yaml')",
    ],
)
def test_what_counts_as_a_private_member(line: str) -> None:
    assert list(_names_of_ours(ast.parse(line), {"_yaml"})) == ["_yaml in line 1"]
    assert list(_names_of_ours(ast.parse("self._yaml(); super()._yaml()"), {"_yaml"})) == []
