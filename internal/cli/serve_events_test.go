package cli_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestServeEvents_OverTheWire: a client's requests for events, with two servers
// on one database.
func TestServeEvents_OverTheWire(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	a, b := wireDial(t, one.addr), wireDial(t, two.addr)
	sub := wireDial(t, two.addr)
	sub.ask(`{"type":"subscribe","id":1,"query":{"items":[{"tags":["course:1"]}]},"subscription":"course"}`)

	a.ask(`{"type":"append","id":1,"events":[{"type":"CourseOffered","tags":["course:1"],"data":{"seats":3}}]}`)
	// Ten students want three seats, on two servers.
	var mu sync.Mutex
	var enrolling sync.WaitGroup
	taken, refused := 0, 0
	for i := range 10 {
		w := wireDial(t, []*program{one, two}[i%2].addr)
		enrolling.Go(func() {
			for {
				count, after := seats(w)
				if count == 3 {
					return
				}
				say(w.Conn, `{"type":"append","id":2,"events":[{"type":"Enrolled","tags":["course:1","student:%d"]}],
					"condition":{"query":{"items":[{"types":["Enrolled"],"tags":["course:1"]}]},"after":%d}}`, i, after)
				m, err := w.next()
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				mu.Lock()
				if m.Type == "ok" {
					taken++
					mu.Unlock()
					return
				}
				if m.Code != "conflict" || m.Position <= 0 {
					t.Errorf("append: %+v", m)
				}
				refused++
				mu.Unlock()
			}
		})
	}
	enrolling.Wait()
	if taken != 3 {
		t.Errorf("%d students have three seats; %d conflicts", taken, refused)
	}
	for n := range 4 {
		if m, err := sub.next(); err != nil || m.Type != "event" {
			t.Fatalf("event %d: %+v, %v", n+1, m, err)
		}
	}
	say(b.Conn, `{"type":"append","id":3,"store":"none","events":[{"type":"T"}]}`)
	if m, err := b.next(); err != nil || m.Code != "not_found" {
		t.Errorf("append to no store: %+v, %v", m, err)
	}
	if status, text := request(t, "GET", one.addr, "/v1/events?type=Enrolled&limit=2&backwards=true", ""); status != 200 || strings.Count(text, `"type":"Enrolled"`) != 2 {
		t.Errorf("GET: %d %s", status, text)
	}
	if status, text := request(t, "POST", one.addr, "/v1/events", `{"events":[{"type":"T"},{"type":"","tags":["x"]}]}`); status != 400 || !strings.Contains(text, `"field":"events[1].type"`) {
		t.Errorf("POST of bad events: %d %s", status, text)
	}
	for _, p := range []*program{one, two} {
		if code := p.stop(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// seats counts who is enrolled, and as of which position.
func seats(w *wire) (count int, after int64) {
	say(w.Conn, `{"type":"query","id":1,"query":{"items":[{"types":["Enrolled"],"tags":["course:1"]}]}}`)
	for {
		m, err := w.next()
		if err != nil {
			w.t.Error(fmt.Errorf("query: %w", err))
			return 3, 0
		}
		if m.Type == "ok" {
			return len(m.Events), m.Next
		}
	}
}
