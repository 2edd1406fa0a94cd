"""What may be typed into the page as an expression: comparisons, and no way to files, other tables or the JVM."""

from __future__ import annotations

import pytest

from wheel_udf.common.errors import ActError
from wheel_udf.page.expressions import require_plain


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "destination = 'old' AND deliver_at < now() + interval 1 hour",
        "destination in ('a', \"b\") and not (seq > 3)",
        "schedule_id like 'order-%' or lower(schedule_id) = 'x'",
        "timestamp'2026-01-01 10:00:00'",
        "date_trunc('hour', deliver_at) + interval '1' day",
        "schedule_id = 'select (from) /* -- ; java_method('",
        "case when (seq > 1) then deliver_at else now() end",
    ],
)
def test_comparisons_and_common_functions_are_taken(text: str) -> None:
    require_plain("where", text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("java_method('java.lang.System', 'exit', 1) = 0", "calls java_method"),
        ("REFLECT ('java.lang.Runtime', 'getRuntime') = ''", "calls reflect"),
        ("system.builtin.reflect('a', 'b') = ''", "calls system.builtin.reflect"),
        ("`reflect`('a', 'b') = ''", "a name in backquotes"),
        ("reflect/**/('a', 'b') = ''", "it has /*"),
        ("1 in (select 1 from text.`/etc/passwd`)", "a name in backquotes"),
        ("exists (select 1)", "it has exists"),
        ("schedule_id in (SELECT value FROM t)", "it has SELECT"),
        ("schedule_id = 'a\\' or java_method('x", "a backslash"),
        ("schedule_id = 'a", "not closed"),
        ("true -- and more", "it has --"),
        ("true; drop table x", "it has ;"),
        ("identifier('x') = 1", "it has identifier"),
        ("input_file_name() = ''", "calls input_file_name"),
        ("transform(array(1), x -> java_method('a')) = 1", "calls array, java_method, transform"),
        ("java_method\u00a0('a') = 1", "calls java_method"),
        ("java_method\u200b('a') = 1", "calls"),
    ],
)
def test_anything_that_could_do_more_is_refused(text: str, why: str) -> None:
    with pytest.raises(ActError, match="not an expression for this page") as error:
        require_plain("where", text)
    assert why in str(error.value)
