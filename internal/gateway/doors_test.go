package gateway_test

// doors are requests with the right that each needs, on /ws and by HTTP. Those that need several have the others in and.
var doors = []struct {
	right, ws  string
	http, body string
	and        []string
}{
	{right: "publish stream:orders", ws: `"type":"publish","stream":"orders","payload":"x"`, http: "POST /v1/streams/orders/messages", body: `{"payload":"x"}`},
	{right: "read stream:orders", ws: `"type":"subscribe","stream":"orders"`, http: "GET /v1/streams/orders/messages"},
	{right: "read stream:orders", http: "GET /v1/streams/orders"},
	{right: "read stream:orders", http: "GET /v1/streams/orders/groups"},
	{right: "commit stream:orders", ws: `"type":"subscribe","stream":"orders","group":"g"`, and: []string{"read stream:orders"}},
	{right: "commit stream:orders", ws: `"type":"commit","stream":"orders","group":"g","position":0`, http: "POST /v1/streams/orders/groups/g/commit", body: `{"position":0}`},
	{right: "admin stream:new", http: "POST /v1/streams/new"},
	{right: "admin stream:orders", http: "DELETE /v1/streams/orders"},
	{right: "enqueue queue:jobs", ws: `"type":"enqueue","queue":"jobs","payload":"x"`, http: "POST /v1/queues/jobs/messages", body: `{"payload":"x"}`},
	{right: "consume queue:jobs", ws: `"type":"consume","queue":"jobs"`, http: "POST /v1/queues/jobs/receive"},
	{right: "consume queue:jobs", ws: `"type":"ack","queue":"jobs","delivery":"1"`, http: "POST /v1/queues/jobs/ack", body: `{"delivery":"1"}`},
	{right: "consume queue:jobs", ws: `"type":"nack","queue":"jobs","delivery":"1"`, http: "POST /v1/queues/jobs/nack", body: `{"delivery":"1"}`},
	{right: "consume queue:jobs", ws: `"type":"extend","queue":"jobs","delivery":"1","lease_ms":5`, http: "POST /v1/queues/jobs/extend", body: `{"delivery":"1","lease_ms":5}`},
	{right: "inspect queue:jobs", http: "GET /v1/queues/jobs"},
	{right: "inspect queue:jobs", http: "GET /v1/queues/jobs/consumers"},
	{right: "admin queue:fresh", http: "POST /v1/queues/fresh", and: []string{"admin stream:fresh"}},
	{right: "admin stream:fresh2", http: "POST /v1/queues/fresh2", and: []string{"admin queue:fresh2"}},
	{right: "admin queue:jobs", http: "DELETE /v1/queues/jobs"},
	{right: "append events:default", ws: `"type":"append","events":[{"type":"A","tags":["t:1"]}]`, http: "POST /v1/events", body: `{"events":[{"type":"A","tags":["t:1"]}]}`},
	{right: "append events:default#t:1", ws: `"type":"append","events":[{"type":"A","tags":["t:1"]}]`, http: "POST /v1/events", body: `{"events":[{"type":"A","tags":["t:1"]}]}`},
	{
		right: "query events:default", and: []string{"append events:default"}, // a condition shows what there is
		ws:   `"type":"append","events":[{"type":"A"}],"condition":{"query":{"items":[{"tags":["none"]}]}}`,
		http: "POST /v1/events", body: `{"events":[{"type":"A"}],"condition":{"query":{"items":[{"tags":["none"]}]}}}`,
	},
	{right: "query events:default", ws: `"type":"query","query":{}`, http: "GET /v1/events"},
	{right: "query events:default#t:1", ws: `"type":"query","query":{"items":[{"tags":["t:1"]}]}`, http: "GET /v1/events?tag=t:1"},
	{right: "query events:default", http: "GET /v1/events/types"},
	{right: "query events:default", ws: `"type":"project","queries":[{"items":[{"tags":["t:1"]}]}]`, http: "POST /v1/events/project", body: `{"queries":[{}]}`},
	{right: "query events:default", ws: `"type":"subscribe","query":{},"subscription":"s"`, http: "POST /v1/events/query", body: `{"query":{}}`},
	{right: "join room:a", ws: `"type":"join","room":"a"`},
	{right: "presence room:a", ws: `"type":"join","room":"a","presence":true`, and: []string{"join room:a"}},
	{right: "history room:a", ws: `"type":"join","room":"a","history":5`, and: []string{"join room:a"}},
	{right: "chat room:a", ws: `"type":"chat","room":"a","text":"x"`},
	{right: "chat room:public", ws: `"type":"chat","text":"x"`, and: []string{"join room:public"}},
	{right: "chat room:a", http: "POST /v1/rooms/a/chats", body: `{"text":"x"}`},
	{right: "history room:a", http: "GET /v1/rooms/a/chats"},
	{right: "presence room:a", http: "GET /v1/rooms/a/members"},
	{right: "admin room:a", http: "POST /v1/rooms/a/kick", body: `{"user":"ann"}`},
	{right: "notify user:bob", http: "POST /v1/users/bob/messages", body: `{"message":{}}`},
	{right: "metrics server:*", http: "GET /metrics"},
	{right: "metrics server:*", http: "GET /v1/overview"},
	{right: "profile server:*", http: "GET /debug/pprof/"},
	{right: "bench server:*", http: "GET /ws/lanes"},
	{right: "bench server:*", http: "GET /v1/bench"},
	{right: "bench server:*", http: "POST /v1/bench/run", body: `{"scenario":"queue"}`},
	{right: "write ingest:*", http: "GET /ws/ingest"},
}
