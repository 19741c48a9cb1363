"""Reads kosoku's index.json and fails unless every case behaved and closed well."""

import collections
import json
import pathlib
import sys

(agent,) = json.loads((pathlib.Path(sys.argv[1]) / "index.json").read_text()).values()
outcomes = collections.Counter()
failed = []
for name, case in agent.items():
    for what in ("behavior", "behaviorClose"):
        outcomes[case[what]] += 1
        if case[what] not in ("OK", "INFORMATIONAL", "UNIMPLEMENTED"):
            failed.append(f"{name}: {what} {case[what]}")
print(f"conformance: {len(agent)} cases, {dict(outcomes)}")
print("\n".join(failed))
sys.exit(bool(failed) or len(agent) < 247)
