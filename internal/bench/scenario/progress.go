package scenario

import (
	"bufio"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// ingestProgress measures how far an ingest load is.
type ingestProgress struct {
	gauge     bench.Progress
	url       string
	ack       bool // the server acknowledges, so its /metrics are not needed
	before    int  // number of messages committed before the load
	committed atomic.Int64
}

// counters counts the committed messages, as far as the server reports them.
func (p *ingestProgress) counters() bench.Counters {
	c := p.gauge.Counters()
	if !p.ack && p.before >= 0 {
		if n := committed(p.url); n >= p.before {
			c.Messages, c.Missing = int64(n-p.before), max(0, c.Messages-int64(n-p.before))
		}
	}
	p.committed.Store(c.Messages)
	return c
}

// committed reads from a server's /metrics how many messages it has committed
// since it started, for a line of progress; -1 if it is unknown.
func committed(ws string) int {
	u, err := url.Parse(ws)
	if err != nil {
		return -1
	}
	client := http.Client{Timeout: 200 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + u.Host + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "tidewire_ingest_committed_messages_total "); ok {
			if n, err := strconv.ParseFloat(value, 64); err == nil { // it may be written as 1e+06
				return int(n)
			}
		}
	}
	return -1
}
