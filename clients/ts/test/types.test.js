import { test } from "node:test";
import { compile } from "./compile.js";

test("the types say what they should", () => compile(["test/types.ts"]));
