package spec

// benchRoutes are the requests on results of benchmarks, and on a benchmark that runs.
func benchRoutes() []Route {
	const right = "bench server:*"
	result := text
	summary := func(description string) *Schema {
		return objectOf(false,
			required("median", figure("the median of the repeats")),
			optional("low", figure("the lower end of its 95 % interval; missing if there was one repeat")),
			optional("high", figure("the upper end")),
			required("trials", atLeast(1, "how many repeats there were"))).said(description)
	}
	texts := func(description string) *Schema { return listOf(text("a sentence"), 0, 0, description) }
	run := objectOf(false,
		required("scenario", text("the scenario")),
		required("state", oneOfTexts("done: it has results, which may be invalid. failed: it has none, and its last lines say why", "running", "done", "stopped", "failed")),
		required("started", moment("when it began")),
		optional("ended", moment("when it ended")),
		optional("step", objectOf(false,
			required("row", text("what is measured now")),
			required("number", atLeast(0, "the number of this step")),
			required("of", atLeast(0, "how many steps there are")),
			required("phase", text("such as prepare, warm-up, measured or drain"))).said("where it is")),
		required("lines", listOf(text("a line"), 0, 200, "its last lines of output")),
		required("points", listOf(objectOf(false,
			required("time", moment("when it was measured")),
			required("row", text("what was measured")),
			required("phase", text("in which phase")),
			required("rate", figure("messages, calls, deliveries or connections in a second, whichever are most")),
			optional("p50_ms", figure("the median of the latencies in this second, in milliseconds")),
			optional("p99_ms", figure("likewise: 99 % were faster")),
			required("cores", figure("the cores that all its processes have used"))), 0, 300, "its last figures, one for each second or so")),
		required("results", listOf(result("a result"), 0, 0, "the results that it has written")))
	answer := objectOf(false, optional("run", run.said("the newest run since the server began; missing if there was none")))
	return []Route{
		{Method: "GET", Path: "/v1/bench", Name: "listBench", Right: right, Summary: "Lists the results of benchmarks in the folder --results of this server, and what it can start.",
			Answer: objectOf(false,
				required("folder", text("the folder, as the server was told")),
				required("results", listOf(objectOf(false,
					required("result", result("its name: the path of its file in the folder, without .json")),
					required("scenario", text("what was measured")),
					required("started", moment("when the run began")),
					required("machine", text("the machine and its PostgreSQL")),
					required("valid", boolean("all its checks hold")),
					optional("figure", text("its main figure, with the unit")),
					optional("row", text("the row that has this figure"))), 0, 500, "the newest first")),
				required("scenarios", listOf(objectOf(false,
					required("scenario", text("its name")),
					required("answers", text("the question that it answers"))), 0, 0, "what there is to start")),
				required("starts", boolean("this server starts benchmarks. In open mode, only one does that listens on its own machine alone")))},
		{Method: "GET", Path: "/v1/bench/compare", Name: "compareBench", Right: right, Summary: "Compares two results, as tidewire bench compare does.",
			Query: Fields{required("before", result("a result")), required("after", result("another one"))},
			Answer: objectOf(false,
				required("differences", texts("what was different about the runs: if anything was, the figures may differ for that reason")),
				required("missing", texts("rows that one of them does not have")),
				required("changes", listOf(objectOf(false,
					required("row", text("the row")),
					required("metric", text("the metric, as docs/reference/results.md has it")),
					required("main", boolean("it is one of the most important ones")),
					required("before", summary("in the first result")),
					required("after", summary("in the second result")),
					optional("p", figure("how likely chance alone makes such a difference (U-test); missing if one of them has one repeat")),
					required("significant", boolean("p is below 0.05, which takes four repeats of each"))), 0, 0, "each metric of each row that both have"))),
			Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/bench/reports", Name: "reportBench", Right: right, Summary: "Makes the report page of some results. The page needs no token, and its address cannot be guessed. A server keeps the last eight.",
			Body:   objectOf(true, required("results", listOf(result("a result"), 1, 20, "the results"))),
			Answer: objectOf(false, required("path", text("the path of the page on this server"))), Codes: []string{"not_found"}},
		{Method: "GET", Path: "/v1/bench/run", Name: "getBenchRun", Right: right, Summary: "Tells how far the newest run of this server is.", Answer: answer},
		{Method: "POST", Path: "/v1/bench/run", Name: "startBench", Right: right,
			Summary: "Starts the quick form of a scenario, on the machine of this server and with a PostgreSQL of its own. It takes CPU time from the server. One runs at a time, and it ends with the server.",
			Body:    objectOf(true, required("scenario", text("its name"))), Answer: answer, Codes: []string{"not_found", "too_many_jobs"}},
		{Method: "DELETE", Path: "/v1/bench/run", Name: "stopBench", Right: right, Summary: "Stops the run. It is running until its processes have ended, and leaves no result.", Answer: answer},
	}
}
