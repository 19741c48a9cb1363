import "./style.css";
import { render } from "preact";
import { exchange } from "./exchange.js";
import { poll } from "./overview/data.js";
import { start } from "./router.js";
import { Shell } from "./shell.js";

await exchange();
addEventListener("hashchange", exchange); // the address may be opened in this tab later
start();
poll();
render(<Shell />, document.getElementById("app")!);
