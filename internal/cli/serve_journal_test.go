package cli_test

import (
	"strings"
	"testing"
)

// TestServeQueues_JournalLost: a queue loses its journal, as after a restore of an
// incomplete backup. Clients are told that trying again does not help, and what the
// operator can do.
func TestServeQueues_JournalLost(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	if status, text := request(t, "POST", p.addr, "/v1/queues/jobs", `{}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	if _, err := db.Pool.Exec(t.Context(), `DELETE FROM tidewire.queue_journal`); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ method, path string }{
		{"GET", "/v1/queues/jobs"}, {"POST", "/v1/queues/jobs/receive?wait_ms=10000"},
	} {
		status, text := request(t, r.method, p.addr, r.path, "")
		if status != 409 || !strings.Contains(text, `"journal_lost"`) || !strings.Contains(text, "tidewire.restart_queue(") {
			t.Errorf("%s %s: %d %s, want journal_lost and what to do", r.method, r.path, status, text)
		}
	}
	w := wireDial(t, p.addr)
	w.ask(`{"type":"consume","queue":"jobs","credits":1,"id":1}`)
	if m, err := w.next(); err != nil || m.Code != "journal_lost" {
		t.Errorf("a consumption: %+v, %v, want its end with journal_lost", m, err)
	}
	if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.restart_queue('jobs', 0)`); err != nil {
		t.Fatal(err)
	}
	w.ask(`{"type":"enqueue","queue":"jobs","payload":"x","id":2}`)
	w.ask(`{"type":"consume","queue":"jobs","credits":1,"id":3}`)
	if m, err := w.next(); err != nil || m.Payload != "x" {
		t.Errorf("with a new journal: %+v, %v, want the message", m, err)
	}
}
