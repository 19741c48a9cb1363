package cli_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// TestServe_ManyAtWork publishes to more streams and queues at the same time than the
// server has connections to PostgreSQL. No publisher pauses before all have made
// progress.
func TestServe_ManyAtWork(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	const each = 5
	var paths []string
	for n := range 40 {
		paths = append(paths, fmt.Sprint("/v1/streams/s", n))
	}
	for n := range 10 {
		paths = append(paths, fmt.Sprint("/v1/queues/q", n))
	}
	var behind atomic.Int32
	behind.Store(int32(len(paths)))
	var publishing sync.WaitGroup
	for _, path := range paths {
		request(t, "POST", p.addr, path, "")
		publishing.Go(func() {
			for n := 1; behind.Load() > 0; n++ {
				status, answer, err := tryRequest(t.Context(), "POST", p.addr, path+"/messages", `{"payload":"x"}`)
				if err != nil || status != http.StatusOK {
					t.Errorf("%s: %d %s, %v", path, status, answer, err)
					behind.Store(0)
				}
				if n == each {
					behind.Add(-1)
				}
			}
		})
	}
	publishing.Wait()
	if n := rows(t, db.URL, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tidewire%'`); n > 28+2 {
		t.Errorf("%d connections to PostgreSQL, want at most 28, one to listen and one for /readyz", n)
	}
}
