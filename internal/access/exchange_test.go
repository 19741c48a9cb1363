package access_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// exchange exchanges a key, and returns the new one and when it ends, or why not.
func (n node) exchange(key string) (text string, expires time.Time, status string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, "http://"+n.url+"/v1/keys/exchange", http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Error(err)
		return
	}
	defer resp.Body.Close()
	var answer struct {
		Key     string
		Expires time.Time
		Error   struct{ Code string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		n.t.Error(err)
	}
	return answer.Key, answer.Expires, strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", answer.Error.Code))
}

// TestExchange: of many that have seen a key, one exchanges it. It gets the other rights for twelve hours, and cannot exchange again.
func TestExchange(t *testing.T) {
	t.Parallel()
	n := startNode(t, migrated.Open(t).URL, "")
	_, once := n.key("console", time.Minute, "metrics,console server:*", "read stream:orders")
	n.await("GET", readOrders, once, "200")
	var mu sync.Mutex
	var keys []string
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			key, expires, status := n.exchange(once)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status == "200" && time.Until(expires) > 11*time.Hour && time.Until(expires) < 13*time.Hour:
				keys = append(keys, key)
			case status != "401 invalid_token":
				t.Errorf("%s, until %s", status, expires)
			}
		})
	}
	all.Wait()
	if len(keys) != 1 || !strings.HasPrefix(keys[0], "tw_") {
		t.Fatalf("%d keys", len(keys))
	}
	for what, want := range map[string]string{"GET " + readOrders: "200", "POST /v1/streams/orders/messages": "403 forbidden", "POST /v1/keys/exchange": "403 forbidden"} {
		method, path, _ := strings.Cut(what, " ")
		if got := n.http(method, path, "", keys[0]); got != want {
			t.Errorf("%s with the new key: %s, want %s", what, got, want)
		}
	}
	if got := n.http("GET", readOrders, "", once); got != "401 invalid_token" {
		t.Errorf("with the key that was exchanged: %s", got)
	}
}

// TestExchange_Refused: a key without the right is not exchanged, nor one without other rights, nor a token.
func TestExchange_Refused(t *testing.T) {
	t.Parallel()
	n := startNode(t, migrated.Open(t).URL, "")
	_, plain := n.key("shop", 0, "read stream:orders")
	_, empty := n.key("empty", 0, "console server:*")
	n.await("GET", readOrders, plain, "200")
	n.await("GET", readOrders, empty, "403 forbidden")
	for name, c := range map[string]struct{ key, want string }{
		"without the right":    {plain, "403 forbidden"},
		"without other rights": {empty, "401 invalid_token"},
		"a token":              {token(t, "ann", nil, "console server:*", "read stream:orders"), "403 forbidden"},
		"nothing":              {"", "401 unauthenticated"},
	} {
		if _, _, got := n.exchange(c.key); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := n.http("GET", readOrders, "", empty); got != "403 forbidden" {
		t.Errorf("a key that was not exchanged does not count any more: %s", got)
	}
}
