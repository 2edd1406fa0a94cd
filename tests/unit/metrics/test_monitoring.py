"""The alert rules and the dashboard: every metric that they name exists, every rule can fire, none fires for a healthy
job.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from tests.documents import ROOT
from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import MINUTE, Clock, T, exported, meter, progress
from tests.unit.metrics.promql import Labels, Vector, evaluate
from wheel_udf.delivery.report import BatchReport
from wheel_udf.metrics.meter import Meter
from wheel_udf.metrics.names import METRICS
from wheel_udf.shard.holdings import Holdings
from wheel_udf.wheel.lateness import LatenessHistogram

FOLDER = ROOT / "conf" / "monitoring"
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]

MINUTES = 40
"""Each story lasts so long, with a batch and a scrape each minute; the trouble begins after ten."""


def batch(minute: int, **changes: Any) -> BatchReport:
    """The batch of a minute in which ten rows fired in time."""
    counts = {"fired": 10 * minute, "missed": 0, "rejected": 0}
    fine = {
        "fired": 10,
        "received": 10,
        "pending": 50,
        "counts": counts,
        "clock_ms": T + minute * MINUTE,
        "next_due_ms": T + (minute + 2) * MINUTE,
    }
    return report(minute, **fine | {"lateness": LatenessHistogram.of([200] * 10)} | changes)


def counted(minute: int, trouble: int, outcome: str) -> BatchReport:
    return batch(
        minute, counts={"fired": 10 * minute, "missed": 0, "rejected": 0} | {outcome: max(0, trouble + 1)}
    )


STORIES: dict[str, Callable[[int, int], BatchReport | None]] = {
    "WheelUnhealthy": lambda minute, trouble: batch(minute) if trouble < 0 else None,
    "WheelLate": lambda minute, trouble: batch(minute, lateness=LatenessHistogram.of([200] * 9 + [90_000 if trouble >= 0 else 200])),
    "WheelSlowBatches": lambda minute, _trouble: batch(minute),
    "WheelBacklog": lambda minute, trouble: batch(minute, backlog=trouble >= 0),
    "WheelIntakePaused": lambda minute, trouble: batch(minute, paused=trouble >= 0),
    "WheelLimitNearlyFull": lambda minute, trouble: batch(minute, full={"pending": 0.9 if trouble >= 0 else 0.5}),
    "WheelUndeliverable": lambda minute, trouble: batch(minute, undeliverable=int(trouble == 0)),
    "WheelDeadLetters": lambda minute, trouble: batch(minute, dead=int(trouble == 0)),
    "WheelBreakerOpen": lambda minute, trouble: batch(minute, breakers={"hook": "open" if trouble >= 0 else "closed"}),
    "WheelMissed": lambda minute, trouble: counted(minute, trouble, "missed"),
    "WheelRejects": lambda minute, trouble: counted(minute, trouble, "rejected"),
    "WheelWatermarkStands": lambda minute, trouble: batch(minute, watermark_ms=T - 60 * MINUTE if trouble >= 0 else T + minute * MINUTE),
    "WheelStateLarge": lambda minute, trouble: batch(minute, held=Holdings(bytes=2_000_000_000 if trouble >= 0 else 1_000)),
}  # fmt: skip
"""By alert: (minute, minute of trouble) -> the batch that ends then."""


def told(name: str, *, healthy: bool = False) -> dict[tuple[str, Labels], list[float | None]]:
    """The series that Prometheus scrapes from the real exporter while a story happens to a job."""
    clock, series = Clock(), {}
    job = meter(clock)
    job.started()
    for minute in range(MINUTES):
        clock.now_ms = T + minute * MINUTE
        trouble = -1 if healthy else minute - 10
        happens(job, name, minute, trouble)
        clock.now_ms += MINUTE // 2
        for family in text_string_to_metric_families(exported(job)):
            for sample in family.samples:
                labels = frozenset({*sample.labels.items(), ("instance", "host:9108"), ("job", "wheel_udf")})
                series.setdefault((sample.name, labels), [None] * MINUTES)[minute] = sample.value
    up = [float(healthy or name != "WheelDown" or minute < 10) for minute in range(MINUTES)]
    series["up", frozenset({("instance", "host:9108"), ("job", "wheel_udf")})] = up
    return series


def happens(job: Meter, name: str, minute: int, trouble: int) -> None:
    found = STORIES.get(name, lambda minute, _trouble: batch(minute))(minute, trouble)
    if found is not None:
        job.on_batch(found)
        whole_ms = 45_000 if name == "WheelSlowBatches" and trouble >= 0 else 700
        job.on_progress(progress(minute, addBatch=whole_ms - 50, triggerExecution=whole_ms))


def firing(rule: dict[str, Any], series: dict[tuple[str, Labels], list[float | None]]) -> Vector:
    """What a rule fires for at the end: its expression has held all the time that it asks for."""
    held = int(rule.get("for", "0m").removesuffix("m"))
    results = [evaluate(rule["expr"], series, minute) for minute in range(MINUTES - 1 - held, MINUTES)]
    last = results[-1]
    return {labels: value for labels, value in last.items() if all(labels in each for each in results)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_fires_for_its_trouble_and_not_for_a_healthy_job(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    if "15m" in rule["expr"]:  # the increase of a quarter of an hour: the trouble has to be recent
        assert len(firing(rule, told_until(name, 20))) == 1
    else:
        assert len(firing(rule, told(name))) == 1
    assert firing(rule, told(name, healthy=True)) == {}


def told_until(name: str, minutes: int) -> dict[tuple[str, Labels], list[float | None]]:
    """The series of a story, as if it had ended after some minutes."""
    return {key: [None] * (MINUTES - minutes) + values[:minutes] for key, values in told(name).items()}


def test_an_alert_says_how_bad_it_is_what_is_wrong_and_what_to_do() -> None:
    assert {rule["labels"]["severity"] for rule in RULES} == {"critical", "warning", "info"}
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "action"}
        assert all(text.endswith(".") for text in rule["annotations"].values())
    assert {rule["alert"] for rule in RULES} == STORIES.keys() | {"WheelDown"}


def exported_names() -> set[str]:
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    return {
        metric.name + suffix for metric in METRICS.values() for suffix in suffixes.get(metric.kind, ("",))
    }


@pytest.mark.parametrize("expression", [*(rule["expr"] for rule in RULES), *EXPRESSIONS])
def test_every_metric_and_label_of_an_expression_exists(expression: str) -> None:
    used = set(re.findall(r"\bwheel_\w+", expression.replace('"wheel_udf"', "")))
    assert used - exported_names() == set()
    of_metrics = {label for metric in METRICS.values() for label in metric.labels} | {"le", "instance", "job"}
    matched = set(re.findall(r"(\w+)=~?\"", expression))
    grouped = re.findall(r"\b(?:by|on|ignoring) \(([\w, ]+)\)", expression)
    assert matched | {label.strip() for some in grouped for label in some.split(",")} <= of_metrics


def test_the_dashboard_shows_every_metric_but_these() -> None:
    shown = set(re.findall(r"\bwheel_\w+", " ".join(EXPRESSIONS)))
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}

    assert METRICS.keys() - bases - shown == {
        "wheel_info", "wheel_batches_total", "wheel_last_batch_timestamp_seconds", "wheel_scheduled_total", "wheel_cancels_total",
        "wheel_events_total", "wheel_pending_by_delay_level", "wheel_in_flight", "wheel_occurrences_total",
        "wheel_fires_total",
    }  # fmt: skip


def test_the_dashboard_has_the_form_that_grafana_loads() -> None:
    assert (DASHBOARD["uid"], DASHBOARD["title"], DASHBOARD["schemaVersion"]) == (
        "wheel-udf",
        "wheel_udf",
        39,
    )
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["source", "instance"]
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in PANELS:
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert all(
            set(target) == {"refId", "datasource", "expr", "legendFormat"} for target in panel["targets"]
        )
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_model_of_a_dashboard_that_grafana_publishes_loads_every_member_as_it_is() -> None:
    register_default_plugins()  # the query of a Prometheus panel is one
    loaded = Dashboard.from_json(copy.deepcopy(DASHBOARD))

    assert all_in(DASHBOARD, json.loads(json.dumps(loaded, cls=JSONEncoder)))


def all_in(given: Any, found: Any) -> bool:
    """Whether each member of a JSON value is in another; Grafana fills in members of its own."""
    if isinstance(given, dict):
        return isinstance(found, dict) and all(
            name in found and all_in(given[name], found[name]) for name in given
        )
    if isinstance(given, list):
        return isinstance(found, list) and len(given) == len(found) and all(map(all_in, given, found))
    return bool(given == found)


def test_the_panels_fill_the_grid_and_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for left, right in combinations(places, 2):
        beside = left["x"] + left["w"] <= right["x"] or right["x"] + right["w"] <= left["x"]
        above = left["y"] + left["h"] <= right["y"] or right["y"] + right["h"] <= left["y"]
        assert beside or above


# ---- the same with Prometheus' own tool, where it is installed -----------------------------------

with_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


def promtool(*arguments: object) -> str:
    ended = subprocess.run(["promtool", *map(str, arguments)], check=False, capture_output=True, text=True)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


def text_of(name: str, labels: Labels) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in sorted(labels)) + "}"


@with_promtool
def test_promtool_accepts_rules_scrape_settings_and_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    plain = [re.sub(r"\$instance", ".*", expression) for expression in EXPRESSIONS]
    recorded = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(plain)]
    panels = tmp_path / "panels.yml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))

    assert promtool("check", "config", FOLDER / "prometheus.yml") == ""
    assert promtool("check", "rules", FOLDER / "alerts.yml", panels) == ""


@with_promtool
def test_promtool_lets_the_same_alerts_fire(tmp_path: Path) -> None:
    tests = []
    for rule in RULES:
        name = rule["alert"]
        series = told_until(name, 20) if "15m" in rule["expr"] else told(name)
        used = set(re.findall(r"\b(?:wheel_\w+|up)\b", rule["expr"]))
        (labels,) = firing(rule, series)
        expected = {"exp_labels": dict(labels) | rule["labels"], "exp_annotations": rule["annotations"]}
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {
                        "series": text_of(each, labels),
                        "values": " ".join("_" if v is None else str(v) for v in values),
                    }
                    for (each, labels), values in series.items()
                    if each in used
                ],
                "alert_rule_test": [
                    {"eval_time": f"{MINUTES - 1}m", "alertname": name, "exp_alerts": [expected]}
                ],
            }
        )
    file = tmp_path / "tests.yml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [str(FOLDER / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}
        )
    )

    assert promtool("test", "rules", file) == ""
