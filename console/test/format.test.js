import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { short, bytes, micros, span, full } = await load("format/numbers.ts");
const { hexLines, preview, visible, base64, bytesOf } = await load("format/bytes.ts");
const { moment, fromInput } = await load("format/time.ts");

test("numbers have few digits", () => {
  const of = (write, cases) => Object.entries(cases).forEach(([n, text]) => assert.equal(write(Number(n)), text));
  of(short, { 0: "0", 7: "7", 999: "999", 999.6: "1.0k", 1234: "1.2k", 12_345: "12k", 999_999: "1.0M", 1_500_000: "1.5M", 2e9: "2.0G" });
  of(bytes, { 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1048575: "1.0 MiB", 5e9: "4.7 GiB" });
  of(micros, { 0: "0 µs", 999: "999 µs", 1500: "1.5 ms", 26_000: "26 ms", 1_200_000: "1.2 s" });
  of(span, { 0: "0 s", 119_000: "119 s", 180_000: "3 min", 7_200_000: "2 h", 864_000_000: "10 days" });
  assert.equal(full(1234567), "1,234,567");
});

test("bytes are laid out with their offset and their letters", () => {
  assert.equal(hexLines(bytesOf("Tidewire, 0123456789")), "000000  54 69 64 65 77 69 72 65  2c 20 30 31 32 33 34 35  Tidewire, 012345\n000010  36 37 38 39                                       6789");
  assert.equal(hexLines(new Uint8Array([0, 255, 60])), "000000  00 ff 3c                                          ..<");
  assert.equal(base64(new Uint8Array([255, 0])), "/wA=");
});

test("a preview has one line, and nothing that hides or turns text", () => {
  assert.equal(preview("a\nb\u202ec\u0000"), "a⏎b␣c␣");
  assert.equal(preview("x".repeat(500)).length, 242);
  assert.equal(preview(new Uint8Array([1, 171])), "01 ab");
  assert.equal(visible("grün 漢字 🙂"), "grün 漢字 🙂");
});

test("times are read and written in the zone of the browser", () => {
  assert.match(moment("2026-11-26T08:05:07.123456Z"), /^2026-11-2[567] \d\d:\d\d:07\.123$/);
  assert.equal(moment("<b>"), "<b>");
  assert.equal(fromInput(""), undefined);
  assert.equal(fromInput("never"), undefined);
  assert.equal(new Date(fromInput("2026-11-26T08:05:07")).getTime(), new Date(2026, 10, 26, 8, 5, 7).getTime());
});
