"""The shape of the package: imports point down, executors load no Spark, and one module alone reads a wall clock."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "wheel_udf"

# From the ground up. A module imports from the rows below its own, and from no other; a new module finds its row here first.
LAYERS = (
    {"errors", "java", "runs"},
    {
        "broker_settings",
        "durations",
        "files",
        "geometry",
        "hints",
        "jars",
        "kafka_options",
        "levels",
        "limits",
        "metrics",
        "secrets",
        "shards",
    },
    {"contract", "prepared", "store_layout"},
    {"setting_values"},
    {
        "checkpoint",
        "columns",
        "demo_parts",
        "departures",
        "failures",
        "kafka_plan",
        "kafka_admin",
        "kafka_topics",
        "local_kafka",
        "session",
        "settings",
        "state",
        "tables",
        "timing_wheel",
    },
    {
        "ahead",
        "changes",
        "clock",
        "delta_files",
        "desk_arguments",
        "demo_account",
        "demo_job",
        "destinations",
        "gate",
        "group_step",
        "kafka_account",
        "memory",
        "presets",
        "purgatory",
        "rules",
        "store_table",
        "store_versions",
        "testing",
        "watch_settings",
        "watch_state",
    },
    {"config", "watch_open"},
    {"fold", "kafka_record", "watch_ids"},
    {
        "batch_writer",
        "cascade",
        "commands",
        "delta_sink",
        "file_sink",
        "kafka_report",
        "kafka_sink",
        "kafka_traffic",
        "slot_store",
        "sources",
        "watching",
    },
    {"by_shard", "pending", "shard_step", "sinks", "store_intake", "watch_look", "watch_rows", "watch_step"},
    {"acts", "pressure", "selection", "watch_operator", "watch_pending", "watch_sources"},
    {"operator", "store_keeper"},
    {"delivery", "history", "watch_job"},
    {"tiered_run"},
    {"tiered"},
    {"job"},
    {"desk", "dry_run"},
    {"cli", "demo", "demo_kafka", "demo_orders"},
)

# What Spark's Python workers load: numpy, pandas, pyarrow and the standard library. pyspark only inside functions.
ON_EXECUTORS = {
    "ahead",
    "cascade",
    "errors",
    "fold",
    "gate",
    "geometry",
    "group_step",
    "hints",
    "levels",
    "limits",
    "memory",
    "metrics",
    "runs",
    "shard_step",
    "shards",
    "state",
    "store_layout",
    "watch_ids",
    "watch_look",
    "watch_open",
    "watch_state",
    "watch_step",
    "watching",
}
LIBRARIES_ON_EXECUTORS = {"numpy", "pandas", "pyarrow"}

# Who reads a wall clock, and why that cannot change which rows fire when.
WALL_CLOCK_READERS = {
    "clock": "the clock source is where time comes in",
    "demo": "tells at the end how many seconds the demo took",
    "kafka_traffic": "the demo's clients, outside of the job: they measure it",
}
_CLOCK_FUNCTIONS = {
    "time": {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "localtime",
        "gmtime",
        "sleep",
    },
}
_CLOCK_METHODS = {"now", "utcnow", "today"}


def _sources() -> dict[str, ast.Module]:
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.glob("*.py"))}


SOURCES = _sources()
MODULES = sorted(SOURCES.keys() - {"__init__"})


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _imports(node: ast.AST, *, at_import_only: bool) -> Iterator[str]:
    """The dotted names imported below a node; either all of them, or those which run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if at_import_only and (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(child)
        ):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            module = child.module or ""
            yield from (
                (f"{module}.{alias.name}" for alias in child.names) if module == "wheel_udf" else (module,)
            )
        yield from _imports(child, at_import_only=at_import_only)


def _own_modules(names: Iterator[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("wheel_udf.")} & set(MODULES)


def _layer(module: str) -> int:
    # A module without a layer is above all others: its own test says so, and the ones below may not import it.
    return next((number for number, modules in enumerate(LAYERS) if module in modules), len(LAYERS))


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_layer(module: str) -> None:
    assert sum(module in layer for layer in LAYERS) == 1, f"write down in LAYERS where {module} belongs"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    imported = _own_modules(_imports(SOURCES[module], at_import_only=False))

    assert sorted(name for name in imported if _layer(name) >= _layer(module)) == []


@pytest.mark.parametrize("module", sorted(ON_EXECUTORS & set(MODULES)))
def test_executor_side_modules_import_three_libraries_at_most(module: str) -> None:
    names = set(_imports(SOURCES[module], at_import_only=True))
    allowed = LIBRARIES_ON_EXECUTORS | sys.stdlib_module_names | {"wheel_udf"}

    assert {name.split(".")[0] for name in names} - allowed == set()
    assert _own_modules(iter(names)) - ON_EXECUTORS == set()


def test_importing_the_executor_side_loads_no_pyspark() -> None:
    modules = ", ".join(f"wheel_udf.{module}" for module in sorted(ON_EXECUTORS & set(MODULES)))
    program = (
        f"import sys, wheel_udf, {modules}; sys.exit('pyspark' in sys.modules or 'pydantic' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], cwd=PACKAGE.parent, check=False).returncode == 0


def test_nothing_but_tests_imports_the_test_helpers() -> None:
    users = [
        module
        for module in MODULES
        if "testing" in _own_modules(_imports(SOURCES[module], at_import_only=False))
    ]

    assert users == []


def _clock_reads(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _CLOCK_FUNCTIONS:
            yield from (alias.name for alias in node.names if alias.name in _CLOCK_FUNCTIONS[node.module])
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in _CLOCK_METHODS or node.attr in _CLOCK_FUNCTIONS.get(owner, set()):
                yield f"{ast.unparse(node)} in line {node.lineno}"


@pytest.mark.parametrize("module", MODULES)
def test_one_module_alone_reads_a_wall_clock(module: str) -> None:
    if module not in WALL_CLOCK_READERS:
        assert list(_clock_reads(SOURCES[module])) == []


def test_every_public_name_is_where_the_package_says() -> None:
    import wheel_udf

    homes = {name: home for name, home in wheel_udf._HOMES.items() if home in MODULES}

    assert {name for name in homes if getattr(wheel_udf, name).__name__ != name} == set()
    assert set(wheel_udf.__all__) == {*wheel_udf._HOMES, "__version__"}


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    import wheel_udf

    with pytest.raises(AttributeError, match="no attribute 'wheal'"):
        wheel_udf.wheal  # noqa: B018  # the access is what is tested
