package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Requests on what others own. No attacker has the right.
var (
	foreignRequests = []string{
		`{"type":"publish","stream":"good-0","payload":"evil","id":N}`, `{"type":"publish","stream":"good-0","messages":[{"payload":"evil"}],"client":"producer of good-0","sequence":1,"id":N}`,
		`{"type":"subscribe","stream":"good-0","from":"start","id":N}`, `{"type":"subscribe","stream":"shared-0","from":"start","id":N}`, `{"type":"subscribe","stream":"good-jobs","from":"start","id":N}`,
		`{"type":"subscribe","stream":"evil-0/../good-0","id":N}`, `{"type":"subscribe","stream":"tidewire.rooms","from":"start","id":N}`,
		`{"type":"commit","stream":"good-0","group":"g","position":1,"id":N}`, `{"type":"enqueue","queue":"good-jobs","payload":"evil","id":N}`,
		`{"type":"consume","queue":"good-jobs","credits":10000,"id":N}`, `{"type":"ack","queue":"good-jobs","delivery":"1","id":N}`, `{"type":"nack","queue":"good-jobs","delivery":"1","id":N}`,
		`{"type":"extend","queue":"good-jobs","delivery":"1","lease_ms":1,"id":N}`, `{"type":"begin","queue":"good-jobs","delivery":"1","id":N}`,
		`{"type":"append","events":[{"type":"Taken","tags":["good","slot:1"]}],"id":N}`, `{"type":"append","events":[{"type":"A","tags":["evil"],"id":"good/appender 0 1"}],"id":N}`,
		`{"type":"append","events":[{"type":"A","tags":["evil"]}],"condition":{"query":{"items":[{"tags":["good"]}]},"after":0},"id":N}`,
		`{"type":"query","query":{"items":[{"tags":["good"]}]},"id":N}`, `{"type":"query","query":{"items":[]},"id":N}`, `{"type":"query","query":{"items":[{"tags":["evil"]},{"tags":["good"]}]},"id":N}`,
		`{"type":"project","queries":[{"items":[{"tags":["good"]}]}],"id":N}`, `{"type":"subscribe","subscription":"s","query":{"items":[{"tags":["good"]}]},"id":N}`,
		`{"type":"join","room":"good","id":N}`, `{"type":"join","room":"stored-good","history":1000,"id":N}`, `{"type":"chat","room":"good","text":"evil","id":N}`, `{"type":"chat","text":"evil","id":N}`,
		`{"type":"join","room":"good","presence":true,"id":N}`, `{"type":"publish","stream":"` + strings.Repeat("g", 120) + `","payload":"evil","id":N}`,
	}
	foreignCalls = []string{
		"DELETE /v1/streams/good-0", "POST /v1/streams/good-0", "GET /v1/streams/good-0", "GET /v1/streams/good-0/messages", "GET /v1/streams/shared-0/messages", "GET /v1/streams/good-0/groups", "POST /v1/streams/good-0/messages",
		"POST /v1/streams/good-0/groups/g/commit", "POST /v1/events", "GET /v1/events", "GET /v1/events?tag=good", "POST /v1/events/query", "POST /v1/events/project", "DELETE /v1/queues/good-jobs", "DELETE /v1/queues/shared-jobs",
		"POST /v1/queues/good-jobs", "GET /v1/queues/good-jobs", "POST /v1/queues/good-jobs/messages", "POST /v1/queues/good-jobs/receive?max=1000", "POST /v1/queues/good-jobs/ack", "POST /v1/queues/good-jobs/nack",
		"POST /v1/queues/good-jobs/extend", "GET /debug/pprof/heap", "POST /v1/streams/evil%2F..%2Fgood-0/messages", "GET /v1//streams/good-0", "GET /v1/streams/%67ood-0", "HEAD /v1/streams/good-0", "POST /v1/queues/good-0",
	}
)

// rightAttacks are those of users on what belongs to others. They are for closed mode alone.
var rightAttacks = []attack{
	{"each-right", brief, func(a *attacker) {
		for _, a.standing = range []standing{entitled, tokenless, mistaken} {
			every := make([]int, len(foreignRequests))
			for i := range every {
				every[i] = i
			}
			a.claim(every)
			for i := range foreignCalls {
				a.claimByHTTP(i)
			}
		}
	}},
	{"forbidden", lasting, func(a *attacker) {
		a.standing = entitled
		a.side(4, func(int) {
			for a.Err() == nil {
				some := make([]int, 500*a.scale)
				for i := range some {
					some[i] = a.pick(len(foreignRequests))
				}
				a.claim(some)
			}
		})
	}},
	{"forbidden-calls", lasting, func(a *attacker) {
		a.side(4, func(int) {
			for a.Err() == nil {
				a.claimByHTTP(a.pick(len(foreignCalls)))
			}
		})
	}},
	{"two-spellings", lasting, func(a *attacker) {
		a.standing = entitled
		for a.Err() == nil {
			// Whichever of the names counts, it must be the same for the right and for the effect.
			a.converse("/ws", `{"type":"publish","stream":"evil-0","Stream":"good-0","payload":"evil","id":1}`, `{"type":"publish","stream":"good-0","\u0073tream":"evil-0","payload":"evil","id":2}`,
				`{"type":"publish","STREAM":"good-0","stream":"evil-0","payload":"evil","id":3}`, `{"type":"enqueue","queue":"evil-queue","Queue":"good-jobs","payload":"evil","id":4}`,
				`{"type":"ping","Type":"publish","stream":"good-0","payload":"evil","id":5}`, `{"type":"append","events":[{"type":"A","tags":["evil"],"Tags":["good"]}],"id":6}`,
				`{"type":"append","events":[{"type":"A","tags":["evil"]}],"Events":[{"type":"A","tags":["good"]}],"id":7}`)
			h := a.listenFor(`{"type":"subscribe","stream":"evil-0","Stream":"good-0","from":"start","id":1}`, `{"type":"subscribe","stream":"evil-1/0","\u0073tream":"good-0","from":"start","subscription":"s","id":2}`)
			if h.err != nil && !a.pause(100*time.Millisecond) {
				return
			}
		}
	}},
	{"used-up-names", lasting, func(a *attacker) {
		a.standing = entitled
		// client and unique_key belong to the user: what this does is nothing to the publisher and the producer, whose ledgers show it.
		for a.Err() == nil {
			next := a.random.IntN(30_000) // most of them before their owners get there
			requests := make([]string, 200)
			for i := range 100 {
				requests[i] = fmt.Sprintf(`{"type":"publish","stream":%q,"client":"producer of %[1]s","sequence":%d,"payload":"evil","id":%d}`, sharedStream, next+i, i+1)
				requests[100+i] = fmt.Sprintf(`{"type":"enqueue","queue":%q,"unique_key":"job-%d","unique_ms":600000,"payload":"evil","id":%d}`, sharedQueue, next+i, 101+i)
			}
			a.converse("/ws", requests...)
			a.pause(200 * time.Millisecond)
		}
	}},
	{"guessed-deliveries", lasting, func(a *attacker) {
		a.standing = entitled
		for a.Err() == nil {
			prefix, last := a.ownDelivery()
			for range 20 {
				guesses := make([]string, 100)
				for i := range guesses {
					guesses[i] = prefix + strconv.FormatUint(last+uint64(i)+1, 36)
				}
				a.settle([]string{"ack", "nack", "extend"}[a.pick(3)], guesses)
			}
		}
	}},
}

// ownDelivery receives a message of the shared queue by HTTP, gives it back at once, and returns the parts of the delivery's name: those of
// others may have the next numbers.
func (a *attacker) ownDelivery() (prefix string, number uint64) {
	_, answer := a.call("POST", "/v1/queues/"+sharedQueue+"/receive?max=1&wait_ms=1000", "")
	var own struct{ Deliveries []struct{ Delivery string } }
	if json.Unmarshal([]byte(answer), &own) != nil || len(own.Deliveries) == 0 {
		return "AAAAAAAAAAAA-", 0
	}
	token := own.Deliveries[0].Delivery
	a.call("POST", "/v1/queues/"+sharedQueue+"/nack", fmt.Sprintf(`{"delivery":%q}`, token))
	prefix, text, _ := strings.Cut(token, "-")
	number, _ = strconv.ParseUint(text, 36, 64)
	return prefix + "-", number
}

// settle settles deliveries of others, by HTTP and on a connection. All must be answered as lost.
func (a *attacker) settle(verb string, guesses []string) {
	list, _ := json.Marshal(guesses)
	if verb == "extend" {
		list = append(list, `,"lease_ms":1`...)
	}
	status, answer := a.call("POST", "/v1/queues/"+sharedQueue+"/"+verb, fmt.Sprintf(`{"deliveries":%s}`, list))
	var refused struct {
		Error struct {
			Code string
			Lost []string
		}
	}
	json.Unmarshal([]byte(answer), &refused)
	if status == http.StatusOK || refused.Error.Code == "lease_lost" && len(refused.Error.Lost) < len(guesses) {
		a.wrong("taken", "%s of deliveries of others was answered %d %.300s", verb, status, answer)
	}
	h := a.converse("/ws", fmt.Sprintf(`{"type":%q,"queue":%q,"deliveries":%s,"id":1}`, verb, sharedQueue, list))
	if m := h.answers[1]; m.Type == "ok" || m.Code == "lease_lost" && len(m.Lost) < len(guesses) {
		a.wrong("taken", "%s of deliveries of others was answered %+v", verb, m)
	}
}

// listenFor sends requests on a new connection, and reads for a moment what they bring.
func (a *attacker) listenFor(requests ...string) heard {
	until := time.Now().Add(200 * time.Millisecond)
	return a.talk("/ws", func(heard) bool { return time.Now().After(until) }, requests...)
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
	a.w.refused.n.Add(int64(len(h.answers)))
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
	a.w.refused.next()
}
