import assert from "node:assert/strict";
import { test } from "node:test";
import { limit, sizes } from "../scripts/size.js";

test("everything that a browser loads is small", async () => {
  const { total } = await sizes();
  assert.ok(total <= limit, `${total} bytes with gzip, of ${limit}`);
});
