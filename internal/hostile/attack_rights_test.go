package hostile

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Requests on what others own. No attacker has the right.
var (
	foreignRequests = []string{
		`{"type":"publish","stream":"good-0","payload":"evil","id":N}`, `{"type":"publish","stream":"good-0","messages":[{"payload":"evil"}],"client":"publisher 0 of good-0","sequence":1,"id":N}`,
		`{"type":"subscribe","stream":"good-0","from":"start","id":N}`, `{"type":"subscribe","stream":"shared-0","from":"start","id":N}`, `{"type":"subscribe","stream":"tidewire.rooms","from":"start","id":N}`,
		`{"type":"commit","stream":"good-0","group":"g","position":1,"id":N}`, `{"type":"enqueue","queue":"good-jobs","payload":"evil","id":N}`,
		`{"type":"consume","queue":"good-jobs","credits":10000,"id":N}`, `{"type":"ack","queue":"good-jobs","delivery":"1","id":N}`,
		`{"type":"append","events":[{"type":"Taken","tags":["good","slot:1"]}],"id":N}`,
		`{"type":"append","events":[{"type":"A","tags":["evil"]}],"condition":{"query":{"items":[{"tags":["good"]}]},"after":0},"id":N}`,
		`{"type":"query","query":{"items":[]},"id":N}`, `{"type":"query","query":{"items":[{"tags":["evil"]},{"tags":["good"]}]},"id":N}`,
		`{"type":"subscribe","subscription":"s","query":{"items":[{"tags":["good"]}]},"id":N}`,
		`{"type":"join","room":"stored-good","history":1000,"id":N}`, `{"type":"chat","room":"good","text":"evil","id":N}`, `{"type":"join","room":"good","presence":true,"id":N}`,
	}
	foreignCalls = []string{
		"DELETE /v1/streams/good-0", "POST /v1/streams/good-0", "GET /v1/streams/good-0", "GET /v1/streams/good-0/messages", "POST /v1/streams/good-0/messages", "POST /v1/streams/good-0/groups/g/commit",
		"POST /v1/events", "GET /v1/events?tag=good", "POST /v1/events/project", "DELETE /v1/queues/good-jobs", "DELETE /v1/queues/shared-jobs",
		"POST /v1/queues/good-jobs/messages", "POST /v1/queues/good-jobs/receive?max=1000", "POST /v1/queues/good-jobs/ack", "GET /debug/pprof/heap", "GET /v1/streams/%67ood-0",
	}
)

// rightAttacks are those of users on what belongs to others. They are for closed mode alone.
var rightAttacks = []attack{
	{"forbidden", lasting, func(a *attacker) {
		a.standing = entitled
		side(4, func(int) {
			for a.again() {
				some := make([]int, a.many(500))
				for i := range some {
					some[i] = a.pick(len(foreignRequests))
				}
				a.claim(some)
				a.claimByHTTP(a.pick(len(foreignCalls)))
			}
		})
	}},
	{"used-up-names", lasting, func(a *attacker) {
		a.standing = entitled
		// client and unique_key belong to the user: what this does is nothing to the publisher and the producer, whose ledgers show it.
		for a.again() {
			next := a.random.IntN(1000) // most of them before their owners get there
			requests := make([]string, 200)
			for i := range 100 {
				requests[i] = fmt.Sprintf(`{"type":"publish","stream":%q,"client":"publisher 0 of %[1]s","sequence":%d,"payload":"evil","id":%d}`, sharedStream, next+i, i+1)
				requests[100+i] = fmt.Sprintf(`{"type":"enqueue","queue":%q,"unique_key":"job-%d","unique_ms":600000,"payload":"evil","id":%d}`, sharedQueue, next+i, 101+i)
			}
			a.converse("/ws", requests...)
			a.pause(200 * time.Millisecond)
		}
	}},
}

// claim makes some of foreignRequests on one connection, and checks that they are refused.
func (a *attacker) claim(which []int) {
	requests := make([]string, len(which))
	for i, n := range which {
		requests[i] = strings.Replace(foreignRequests[n], `"id":N`, `"id":`+strconv.Itoa(i+1), 1)
	}
	h := a.converse("/ws", requests...)
	for id, m := range h.answers {
		if m.Type != "error" {
			a.wrong("taken", "%s was answered %+v, want forbidden", requests[id-1], m)
		}
	}
}

// claimByHTTP makes one of foreignCalls, and checks that it is refused.
func (a *attacker) claimByHTTP(which int) {
	const body = `{"payload":"evil","delivery":"1","position":1,"events":[{"type":"A","tags":["good"]}],"queries":[{"items":[]}]}`
	method, path, _ := strings.Cut(foreignCalls[which], " ")
	if method == http.MethodPost {
		a.denied(method, path, body)
	} else {
		a.denied(method, path, "")
	}
}
