package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestAttack_JobFlood: of many jobs that are started at once four run, whatever queue they are of, and the others are refused. Everything else works
// meanwhile, and a job that was stopped has a place for another.
func TestAttack_JobFlood(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	var started, refused atomic.Int64
	var running sync.WaitGroup
	for n := range 50 {
		running.Go(func() {
			act := []string{"redrive", "purge"}[n%2]
			switch status, text := c.do("POST", fmt.Sprintf("/v1/queues/q%d/dead/%s", n%5, act), `{"all":true}`); {
			case status == http.StatusOK:
				started.Add(1)
			case status == http.StatusTooManyRequests && strings.Contains(text, "too_many_jobs"):
				refused.Add(1)
			default:
				t.Errorf("%d %s", status, text)
			}
		})
	}
	running.Wait()
	if started.Load() != 4 || refused.Load() != 46 {
		t.Errorf("%d jobs run and %d are refused, want 4 and 46", started.Load(), refused.Load())
	}
	for _, one := range []struct{ method, path, body string }{
		{"POST", "/v1/streams/s/messages", `{"payload":"x"}`}, {"POST", "/v1/queues/q0/messages", `{"payload":"x"}`}, {"GET", "/v1/queues/q0/dead", ""},
		{"POST", "/v1/queues/q0/dead/purge", `{"positions":[1]}`}, {"POST", "/v1/queues/q0/receive?max=1", ""},
	} {
		if status, text := c.do(one.method, one.path, one.body); status != http.StatusOK {
			t.Errorf("%s %s: %d %s", one.method, one.path, status, text)
		}
	}
	for n := range 5 {
		queue := fmt.Sprintf("/v1/queues/q%d/jobs", n)
		_, text := c.do("GET", queue, "")
		for _, part := range strings.Split(text, `"job":"`)[1:] {
			id, _, _ := strings.Cut(part, `"`)
			c.refused("DELETE", "/v1/queues/other/jobs/"+id, "", http.StatusNotFound, "not_found")
			c.do("DELETE", queue+"/"+id, "")
			waitFor(t, func() bool {
				_, text := c.do("GET", queue+"/"+id, "")
				return strings.Contains(text, `"state":"stopped"`)
			}, "a job does not stop")
			started.Add(-1)
		}
	}
	if started.Load() != 0 {
		t.Errorf("%d jobs are not in the lists of their queues", started.Load())
	}
	if status, text := c.do("POST", "/v1/queues/q/dead/purge", `{"all":true}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
}

// TestAttack_JobsThatEnd: a server remembers 100 jobs, and never forgets one that runs.
func TestAttack_JobsThatEnd(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	_, text := c.do("POST", "/v1/queues/q/dead/redrive", `{"all":true}`)
	id, _, _ := strings.Cut(strings.TrimPrefix(text, `{"job":"`), `"`)
	for started := 0; started < 110; {
		if status, _ := c.do("POST", "/v1/queues/broken/dead/redrive", `{"all":true}`); status == http.StatusOK {
			started++
		}
	}
	if _, text := c.do("GET", "/v1/queues/broken/jobs", ""); strings.Count(text, `"job":`) != 99 {
		t.Errorf("%d jobs that have ended are remembered, want 99", strings.Count(text, `"job":`))
	}
	if _, text := c.do("GET", "/v1/queues/q/jobs/"+id, ""); !strings.Contains(text, `"state":"running"`) {
		t.Errorf("the job that runs: %s", text)
	}
}
