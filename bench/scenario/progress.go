package scenario

import (
	"bufio"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// committed asks a server's /metrics how many messages it has committed since
// it started, for a line of progress; -1 if it does not say.
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
			if n, err := strconv.ParseFloat(value, 64); err == nil { // it may say 1e+06
				return int(n)
			}
		}
	}
	return -1
}
