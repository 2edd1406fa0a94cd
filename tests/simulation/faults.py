"""Planted faults: what goes wrong in the protocol if one rule of it is left out. Each must be caught.

The model asks ``world.fault`` at the place where the rule belongs. The real code is never changed.
"""

from __future__ import annotations

DIRECT = {
    "commit before sink": "commits/N is written before the sinks have the rows of batch N",
    "no transaction check": "a table gets a repeated batch again",
    "state not tied to a batch": "a repeated batch begins with the newest state instead of that of the batch before",
    "plan with the new clock": "a repeated batch runs at the time of its repetition",
    "replay reads more": "a repeated batch reads what has come meanwhile",
    "replay with the new settings": "a repeated batch runs with the limit of the new start",
    "nothing is remembered": "an id is forgotten as soon as it has fired",
    "the clock follows a step back": "the clock of a shard goes back with the wall clock",
    "watermark going back": "a restart begins with watermark 0",
    "zombie commit accepted": "log entries are replaced, and Delta looks for no conflict",
    "a lost hint counts as idle": "a shard without an answer counts as one with nothing due",
    "rejects before tables": "the rejects, which mark a batch as complete, are written first",
    "fires within the tick": "an entry is released a millisecond early",
    "acts are taken again after a restart": "a batch takes all acts, also those that batches before it have taken",
    "a replay takes acts that came later": "a repeated batch takes what is on the board, not what its plan says",
    "a replay divides the limit anew": "a repeated batch divides the limit by what the shards say now, not as its plan says",
    "cancels after the clock": "the clock moves before the cancels of a batch take effect",
}
TIERED = {
    "hand-over without its cursor": "the rows of a hand-over are committed without the new cursor",
    "drop before append": "far slots are dropped before their rows are near",
    "no cancels in a hand-over": "a cancel in the store does not end a far entry",
    "placed by an old cursor": "rows are committed though the cursor, by which they were placed, has moved",
    "late files are dropped": "a drop takes files that came after the rows were read",
    "no look at news": "commands that come during a hand-over are not compared",
    "no marks are kept": "retired windows leave no versions behind",
    "the clock passes the cursor": "the wheel's clock goes beyond what was handed over",
    "a batch of the intake is stored again": "the store takes a repeated batch of the intake again",
    "an act is taken again after a restart": "the keeper does not look for the number of an act in the store's log",
    "an act does not say what the wheel has": "an act on what has fired and is forgotten starts it anew",
}
BACKLOG = {
    "the intake does not wait for the wheel": "under the event clock the intake commits batch after batch",
    "rows are released by the clock before theirs": "under the event clock a batch that has read rows without their clock releases them",
    "hand-over without its cursor": TIERED["hand-over without its cursor"],
}
SERIES = {
    "an occurrence is lost at the hand-over": "the row of a series that the wheel has not read is dropped by a hand-over",
}
_OF_BOTH = ("commit before sink", "no transaction check", "state not tied to a batch", "replay reads more")
PURGATORY = {name: DIRECT[name] for name in _OF_BOTH}
POLICIES = {
    "an edit doubles the occurrence at its boundary": "an occurrence is released by the old version of a series and by the new one",
    "an attempt counts twice": "the report of a batch that is repeated is taken, and that of its repetition too",
    "what comes back is lost at a restart": "what could not be delivered is posted, and not kept in the checkpoint",
    "the tokens are full again after a restart": "a process begins with the saved tokens of a pause",
}
FAULTS = {
    "direct": DIRECT,
    "policies": POLICIES,
    "tiered": TIERED,
    "series": SERIES,
    "backlog": BACKLOG,
    "purgatory": PURGATORY,
}
