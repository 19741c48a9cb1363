package gateway_test

// doors are requests with the right that each needs, on /ws and by HTTP. Those that need several have the others in and. Routes that need one right are in
// TestAuth_Routes.
var doors = []struct {
	right, ws  string
	http, body string
	and        []string
}{
	{right: "publish stream:orders", ws: `"type":"publish","stream":"orders","payload":"x"`},
	{right: "read stream:orders", ws: `"type":"subscribe","stream":"orders"`},
	{right: "commit stream:orders", ws: `"type":"subscribe","stream":"orders","group":"g"`, and: []string{"read stream:orders"}},
	{right: "commit stream:orders", ws: `"type":"commit","stream":"orders","group":"g","position":0`},
	{right: "enqueue queue:jobs", ws: `"type":"enqueue","queue":"jobs","payload":"x"`},
	{right: "consume queue:jobs", ws: `"type":"consume","queue":"jobs"`},
	{right: "consume queue:jobs", ws: `"type":"ack","queue":"jobs","delivery":"1"`},
	{right: "consume queue:jobs", ws: `"type":"nack","queue":"jobs","delivery":"1"`},
	{right: "consume queue:jobs", ws: `"type":"extend","queue":"jobs","delivery":"1","lease_ms":5`},
	{right: "admin queue:fresh", http: "POST /v1/queues/fresh", and: []string{"admin stream:fresh"}},
	{right: "admin stream:fresh2", http: "POST /v1/queues/fresh2", and: []string{"admin queue:fresh2"}},
	{right: "append events:default", ws: `"type":"append","events":[{"type":"A","tags":["t:1"]}]`},
	{right: "append events:default#t:1", ws: `"type":"append","events":[{"type":"A","tags":["t:1"]}]`, http: "POST /v1/events", body: `{"events":[{"type":"A","tags":["t:1"]}]}`},
	{
		right: "query events:default", and: []string{"append events:default"}, // a condition shows what there is
		ws:   `"type":"append","events":[{"type":"A"}],"condition":{"query":{"items":[{"tags":["none"]}]}}`,
		http: "POST /v1/events", body: `{"events":[{"type":"A"}],"condition":{"query":{"items":[{"tags":["none"]}]}}}`,
	},
	{right: "query events:default", ws: `"type":"query","query":{}`},
	{right: "query events:default#t:1", ws: `"type":"query","query":{"items":[{"tags":["t:1"]}]}`, http: "GET /v1/events?tag=t:1"},
	{right: "query events:default", ws: `"type":"project","queries":[{"items":[{"tags":["t:1"]}]}]`},
	{right: "query events:default", ws: `"type":"subscribe","query":{},"subscription":"s"`},
	{right: "join room:a", ws: `"type":"join","room":"a"`},
	{right: "presence room:a", ws: `"type":"join","room":"a","presence":true`, and: []string{"join room:a"}},
	{right: "history room:a", ws: `"type":"join","room":"a","history":5`, and: []string{"join room:a"}},
	{right: "chat room:a", ws: `"type":"chat","room":"a","text":"x"`},
	{right: "chat room:public", ws: `"type":"chat","text":"x"`, and: []string{"join room:public"}},
	{right: "metrics server:*", http: "GET /metrics"},
	{right: "profile server:*", http: "GET /debug/pprof/"},
	{right: "bench server:*", http: "GET /ws/lanes"},
	{right: "write ingest:*", http: "GET /ws/ingest"},
}
