package gateway

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
)

// deadlines is a ResponseWriter that records the write deadline of its connection.
type deadlines struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.until = t; return nil }

// TestEvict_SparesTheNextRequest: an eviction after the end of its request does not affect the next request of the connection.
func TestEvict_SparesTheNextRequest(t *testing.T) {
	t.Parallel()
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	c := &call{w: w, memory: budget.New(0).Open(nil), cancel: func() {}}
	c.end()
	c.evict()
	if !w.until.IsZero() {
		t.Errorf("the next request has until %v", w.until)
	}
	c = &call{w: w, memory: budget.New(0).Open(nil), cancel: func() {}}
	c.evict()
	if w.until.After(time.Now()) {
		t.Errorf("the request itself has until %v", w.until)
	}
	if c.end(); w.until.Before(time.Now()) {
		t.Error("its answer, which says why, cannot be sent")
	}
}

// TestHTTP_DeadlineOfTheRequestBefore: the write deadline of one request does not end the answer to the next one.
func TestHTTP_DeadlineOfTheRequestBefore(t *testing.T) {
	t.Parallel()
	s := New(Config{Engine: engine.Engine{Ingest: func(func(uint64)) engine.Source { return nil }}})
	defer s.Shutdown(t.Context())
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s.ServeHTTP(w, httptest.NewRequest("GET", "/v1/nothing", nil))
	if w.Code != 404 || w.until.IsZero() {
		t.Fatalf("answered with %d until %v", w.Code, w.until)
	}
	for _, path := range []string{"/healthz", "/metrics"} {
		before := time.Now()
		w.until = before
		s.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.until.Before(before.Add(shortAnswer)) {
			t.Errorf("%s has until %v", path, w.until)
		}
	}
	if s.ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/profile", nil)); !w.until.IsZero() {
		t.Errorf("a profile has until %v", w.until)
	}
}
