// Texts that would be scripts if they were markup.
import assert from "node:assert/strict";

export const nasty = [
  "<script>globalThis.xss=1</script>", '<img src=x onerror="globalThis.xss=2">', '"><svg onload=globalThis.xss=3>', "javascript:globalThis.xss=4",
  "'-globalThis.xss=5-'", "</textarea><iframe srcdoc='<script>parent.xss=6</script>'>", "{{constructor.constructor('globalThis.xss=7')()}}", "<a href=javascript:xss=8>x</a>",
];

/** Fails if one of them has become markup. */
export async function clean(page, where) {
  const found = await page.evaluate(() => [...document.querySelectorAll("#app script, #app img, #app iframe, #app [onerror], #app [onload], a[href^='javascript']")].map((e) => e.outerHTML));
  assert.deepEqual(found, [], where);
}
