"""Hostile input for tests: names that mean something to a path, a shell, SQL or a terminal, and good bytes with damage
in them.
"""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import strategies as st

GOOD_NAMES: Final = ("orders", "A.b_c-9", "...", "..a", "-rf", "_", "x" * 249, "%2e".replace("%", "-"))
"""Names of destinations that look odd and break no rule."""

RESERVED_NAMES: Final = ("_delta_log", "_DELTA_LOG", "_Delta_Log")
"""Names that obey the rule and that Delta keeps to itself."""

BAD_NAMES: Final = (
    # folders, and ways out of one
    *("", ".", "..", "../x", "../../x", "/etc/passwd", "/", "//x", "a/b", "a/", "a/..", "./a", "a/../../b", "~/x", "\\x"),
    *("..\\..\\x", "C:\\x", "C:x", "\\\\host\\share", "file:/x", "file:///x", "s3a://bucket/x", "hdfs://host/x", "jar:file:x!/y"),
    # percent encodings, braces and wildcards, which Hadoop and shells expand
    *("%2e%2e", "%2e%2e%2fx", "..%2fx", "a%00b", "a%0ab", "%", "a*", "?", "[a]", "{a,b}", "a{b", "${HOME}", "$HOME", "$(id)"),
    # quotes, and pieces of SQL, of shells, of formats and of markup
    *("`a`", "a`b", "'a'", '"a"', "a;b", "a; DROP TABLE t", "' OR '1'='1", "a--b/*", "|x", "&x", "<x>", "a\\", "{0}", "%s%n"),
    *("a,b", "a=b", "a:b", "a@v1", "a#b", "a+b", "a!b", "delta.`/tmp/x`", "(a)", "a b", " a", "a ", "\ta"),
    # control characters
    *("\0", "a\0", "a\0b", "a\nb", "a\n", "\r\n", "\x1b[2J", "\x07", "\x7f", "\x80", "\u0085"),
    # letters that look like others, turn the text around, or are not to be seen
    *("\u043erders", "\uff41", "o\u0308", "\u00f6rders", "\u0660", "\u2024\u2024", "\uff0e\uff0e", "a\uff0fb", "a\u2215b"),
    *("\u202egnp.x", "a\u200bb", "\ufeffa", "a\u00a0b", "a\u00adb", "\u2028", "\u0131", "\u212a", "\ufb01"),
    # beyond the first 65,536 characters, and in many bytes
    *("\U0001f600", "a\U0001f1e9\U0001f1ea", "\U0001d41a", "\U0010ffff", "\ufffd", "\uffff", "\u4e2d\u6587", "\u0627\u0644"),
    # long
    *("x" * 250, "x" * 10_000, "../" * 100, "." * 250, "\u00e9" * 249),
)  # fmt: skip
"""Over 100 names that no destination may have."""


PATH_NAME: Final = "a b%41#c+d=e'f\"g\u00fc*?[h]{i,j}`k\\l"
"""A folder whose name means something to a URI, to a pattern of Hadoop, to SQL and to a shell; only a colon does not
go with its wildcards.
"""


def is_id(name: str) -> bool:
    """The rule of ids: 1 to 512 bytes of UTF-8 without NUL."""
    return 1 <= len(name.encode()) <= 512 and "\0" not in name


def mangled(*samples: bytes) -> st.SearchStrategy[bytes]:
    """A sample as it is or with a part of it replaced, cut out or repeated; or any bytes."""

    def damage(sample: bytes, start: int, length: int, put_in: bytes, times: int) -> bytes:
        start %= len(sample) + 1
        return sample[:start] + put_in * times + sample[start + length :]

    pieces = st.binary(max_size=4) | st.sampled_from(
        [b"", b"[", b"{", b'"', b"\\", b"\0", b"9", b"-", b"null", b"true", b"1e999", b'"x"', b"\xed\xa0\x80"]
    )
    times = st.sampled_from([0, 1, 1, 2, 7, 5_000])
    damaged = st.builds(
        damage, st.sampled_from(samples), st.integers(0, 2_000), st.integers(0, 12), pieces, times
    )
    return damaged | st.binary(max_size=40)


def mangled_at_random(make: Random, samples: list[bytes]) -> bytes:
    """The same for rows that a test makes by the thousand, from a seed: one value of five is damaged."""
    sample = make.choice(samples)
    start, kind = make.randrange(len(sample) + 1), make.randrange(25)
    if kind == 0:
        return make.randbytes(make.randrange(30))
    if kind == 1:
        return sample[:start]
    if kind == 2:
        return sample[:start] + make.randbytes(make.randrange(1, 4)) + sample[start + 1 :]
    if kind == 3:
        piece = make.choice(
            [b"\0", b"\xff", b'"', b"[", b"9", b"-", b" ", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80"]
        )
        return sample[:start] + piece * make.choice([1, 2, 3_000]) + sample[start:]
    if kind == 4:
        return sample + sample
    return sample
