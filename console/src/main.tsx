import "uplot/dist/uPlot.min.css";
import "./style.css";
import { render } from "preact";
import { poll } from "./overview/data.js";
import { start } from "./router.js";
import { Shell } from "./shell.js";

start();
poll();
render(<Shell />, document.getElementById("app")!);
