"""Numbers and foreign texts as the page writes them."""

from __future__ import annotations

import pytest

from wheel_udf.page.words import bytes_text, literal, payload_text, short_count, span_text, until_text


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("order-17", "order-17"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("""'"&""", "&#39;&#34;&amp;"),
        ("a\u202eb", 'a<span class="code">\\u202e</span>b'),
        ("a\nb\tc", 'a<span class="code">\\u000a</span>b<span class="code">\\u0009</span>c'),
        ("\U000e0001", '<span class="code">\\U000e0001</span>'),
        ("שלום über 東京 🎉", "שלום über 東京 🎉"),
        (None, "None"),
    ],
)
def test_a_foreign_text_shows_each_of_its_characters_and_nothing_of_it_is_markup(
    text: object, html: str
) -> None:
    assert literal(text) == f'<bdi class="literal">{html}</bdi>'


def test_a_payload_that_was_cut_shows_what_is_there_and_how_large_it_is() -> None:
    text = ("ä" * 3_000).encode()
    assert payload_text(text[:2_001], len(text)) == "ä" * 1_000 + " ..."
    assert payload_text(b"\xff" * 2_000, 1_000_000).startswith("binary, 1,000,000 bytes: ff ff")
    assert payload_text(b"abc", 3) == "abc"


def test_counts_sizes_and_spans_are_short() -> None:
    assert [short_count(n) for n in (0, 999, 1_000, 1_249, 9_999, 12_345, 1_234_567, 2_000_000_000)] == [
        "0", "999", "1.0k", "1.2k", "10k", "12k", "1.2M", "2.0G",
    ]  # fmt: skip
    assert [bytes_text(n) for n in (12, 1_234, 3_400_000)] == ["12 B", "1.2 kB", "3.4 MB"]
    assert [span_text(ms) for ms in (0, 999, 1_000, 20_000, 400_000, 86_400_000, -1_500)] == [
        "0 ms", "999 ms", "1 s", "20 s", "6.7 min", "1 d", "-1.5 s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("due_ms", "text"), [(12_000, "in 2 s"), (10_000, "now"), (7_000, "3 s ago"), (None, "-")]
)
def test_the_distance_of_an_instant_is_counted_from_the_clock(due_ms: int | None, text: str) -> None:
    assert until_text(due_ms, 10_000) == text


def test_a_payload_is_shown_as_text_or_in_hex() -> None:
    assert payload_text(None) == ""
    assert payload_text("ü".encode()) == "ü"
    assert payload_text(b"\xff\x00a") == "binary, 3 bytes: ff 00 61"
    assert payload_text(b"\xff" * 100).endswith(" ff ...")
