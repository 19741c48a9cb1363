import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { root } from "./compile.js";

const embedded = `${root}../../internal/gateway/assets/client.js`;

test("the server has this client", { skip: !existsSync(embedded) && "this is no clone of the repository" }, () => {
  const same = readFileSync(embedded).equals(readFileSync(`${root}dist/tidewire.min.js`));
  assert.ok(same, "run npm run embed, which copies dist/tidewire.min.js to internal/gateway/assets/client.js");
});
