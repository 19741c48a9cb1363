"""Reads kosoku's index.json and fails unless so many cases behaved and closed well."""

import collections
import json
import pathlib
import sys

(cases,) = json.loads((pathlib.Path(sys.argv[1]) / "index.json").read_text()).values()
expected = int(sys.argv[2])
outcomes = collections.Counter()
failed = []
for name, case in cases.items():
    outcomes[case["behavior"]] += 1
    for what in ("behavior", "behaviorClose"):
        if case[what] not in ("OK", "INFORMATIONAL"):
            failed.append(f"{name}: {what} {case[what]}")
print(f"conformance: {len(cases)} cases, {dict(outcomes)}, {len(failed)} failed")
print("\n".join(failed))
sys.exit(bool(failed) or len(cases) < expected)
