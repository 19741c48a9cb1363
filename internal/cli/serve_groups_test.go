package cli_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestServe_GroupsInPages: a stream may have many groups, and no answer lists them
// all. A stream with partitions adds up the groups of its partitions.
func TestServe_GroupsInPages(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	w := wireDial(t, p.addr)
	for _, one := range []struct{ stream, options string }{{"one", `{}`}, {"parts", `{"partitions":2}`}} {
		if status, text := request(t, "POST", p.addr, "/v1/streams/"+one.stream, one.options); status != 200 {
			t.Fatalf("create: %d %s", status, text)
		}
	}
	var want []string
	for n := range 250 {
		name := fmt.Sprintf("g %03d", n)
		want = append(want, name)
		for _, s := range []string{"one", fmt.Sprintf("parts/%d", n%2)} {
			w.ask(`{"type":"commit","stream":%q,"group":%q,"position":0,"id":1}`, s, name)
		}
	}
	w.ask(`{"type":"commit","stream":"parts/1","group":"g 000","position":0,"id":1}`) // in both
	for _, s := range []string{"one", "parts"} {
		var got []string
		for after := ""; ; {
			status, text := request(t, "GET", p.addr, "/v1/streams/"+s+"/groups?after="+url.QueryEscape(after), "")
			var page struct {
				Groups []struct{ Group string }
				Next   string
			}
			if err := json.Unmarshal([]byte(text), &page); status != 200 || err != nil || len(page.Groups) > 100 {
				t.Fatalf("%d %.200s, %v", status, text, err)
			}
			if len(page.Groups) == 0 {
				break
			}
			for _, g := range page.Groups {
				got = append(got, g.Group)
			}
			after = page.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d groups %.100q, want %d", s, len(got), got, len(want))
		}
		out := shell{t, db.URL}.run("stream", "info", s)
		for _, name := range want {
			if !strings.Contains(out, name) {
				t.Errorf("stream info %s lacks %q", s, name)
			}
		}
	}
}
