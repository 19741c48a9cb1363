import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { effectOf } = await load("streams/groups.tsx");
const { keeps, loses } = await load("streams/retention.tsx");

test("a reset says what it means", () => {
  const effect = (offset, to) => effectOf({ is: { offset }, to });
  assert.equal(effect(2000, 500), "From position 2,000 to 500: at most 1,500 messages will be read again.");
  assert.equal(effect(1, 2), "From position 1 to 2: 1 message will be skipped.");
  assert.equal(effect(7, 7), "The group is at position 7 already.");
});

test("a change of retention says whether messages may be lost", () => {
  const all = { max_age_ms: 0, max_bytes: 0, consumed: false };
  const day = { ...all, max_age_ms: 86_400_000 };
  const kept = { ...all, consumed: true };
  for (const [before, after, want] of [
    [all, all, false], [all, day, true], [day, all, false], [day, { ...day, max_age_ms: 1 }, true], [day, { ...day, consumed: true }, false], [{ ...day, consumed: true }, day, true],
    [all, kept, true], [kept, kept, false], [kept, all, false], [day, kept, true], [day, { ...day, max_bytes: 5 }, true], [kept, { ...day, consumed: true }, true],
  ]) assert.equal(loses(before, after), want, `${JSON.stringify(before)} ${JSON.stringify(after)}`);
  assert.equal(keeps({ max_age_ms: 7_200_000, max_bytes: 1 << 30, consumed: true }), "2 h and 1.0 GiB, and what a group has not read");
});
