"""The example of the page about the ledger checker prints what stands below it. It needs no Spark."""

from __future__ import annotations

import pytest

from tests.documents import blocks
from wheel_udf.testing import ledger


def test_the_example_prints_the_report_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    (program,), (printed,) = blocks("docs/ledger.md", "python"), blocks("docs/ledger.md", "text")
    exec(compile(program, "docs/ledger.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_docstring_lists_the_kinds_in_their_order() -> None:
    named = [line.split()[0] for line in (ledger.__doc__ or "").splitlines() if line.split()[:1]]
    assert tuple(dict.fromkeys(word for word in named if word in ledger.KINDS)) == ledger.KINDS
