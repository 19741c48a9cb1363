import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { parse, layOut, compact, loses } = await load("format/json.ts");
const laid = (text) => layOut(parse(text)).map((piece) => piece.text).join("");

test("numbers keep their text", () => {
  for (const number of ["9007199254740993", "12345678901234567890123", "1.10", "-0", "1e400", "0.1000000000000000055511151231257827"]) {
    assert.equal(laid(`{"n":${number}}`), `{\n  "n": ${number}\n}`);
    assert.equal(compact(parse(`[ ${number} ]`)), `[${number}]`);
  }
});

test("what is laid out is what was read", () => {
  for (const text of ['{"a":[1,{"b":null}],"c":"x\\n\\"y\\u00e9"}', "[]", "{}", "[[],{}]", '"text"', "true", ' {"a" : 1 }\n', '{"a":1,"a":2}', '{"__proto__":1}']) {
    assert.deepEqual(JSON.parse(laid(text)), JSON.parse(text));
    assert.deepEqual(JSON.parse(compact(parse(text))), JSON.parse(text));
  }
});

test("what is no JSON is refused, as JSON.parse refuses it", () => {
  for (const text of ["", " ", "{", "[1,]", '{"a"}', '{"a":}', "{a:1}", "01", "1.", "+1", ".5", "NaN", "'a'", '"a', '"\t"', '"\\x"', "[1 2]", "1 2", "]", "{}}", '{"a":1,}', "undefined", "tru", "[[[".repeat(1000)]) {
    assert.throws(() => JSON.parse(text));
    assert.equal(parse(text), undefined, text.slice(0, 20));
  }
  assert.equal(parse("[".repeat(5000) + "]".repeat(5000)), undefined, "too deep to show");
});

test("it says when a browser would round", () => {
  for (const text of ["[9007199254740993]", '{"a":{"b":-12345678901234567890}}', "1e400", "0.12345678901234567"]) assert.equal(loses(parse(text)), true, text);
  for (const text of ["[9007199254740991]", "0.1", "-1.5e3", '"9007199254740993"', "1000000000000", "0.000001", "null"]) assert.equal(loses(parse(text)), false, text);
});
