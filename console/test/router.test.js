import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { placeOf, href } = await load("router.ts");

test("an address is read as it was written", () => {
  for (const name of ["orders", "a/b", "ä 漢", "100%", "?x=1&y", "#", "<img src=x>", "a+b", ".", "..", "~.", "~~..", "~", "...", "~..."]) {
    const { pathname, search } = new URL(href(["streams", name], { key: name, after: 0, live: undefined, view: "" }), "http://x");
    const place = placeOf(pathname, search);
    assert.deepEqual(place.parts, ["streams", name]);
    assert.deepEqual(Object.fromEntries(place.query), { key: name, after: "0" });
  }
});

test("addresses that nobody has written are read too", () => {
  assert.deepEqual(placeOf("/console/", "").parts, []);
  assert.deepEqual(placeOf("/console", "").parts, []);
  assert.deepEqual(placeOf("/console/streams/%zz", "").parts, ["streams", "%zz"]);
  assert.deepEqual(placeOf("/console//streams//", "").parts, ["streams"]);
});
