package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestServe_RoomHistory: old chats of stored rooms are deleted, and a reader that comes back after them is told, on /ws/chat and by HTTP.
func TestServe_RoomHistory(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	for _, flag := range []string{"--room-history=1d", "--room-history-bytes=1GB"} {
		if code, _, errOut := run(t, nil, "serve", "--database-url", db.URL, "--port", "0", flag); code != cli.ExitUsage || !strings.Contains(errOut, "--stored-rooms") {
			t.Errorf("%s alone: %d %s", flag, code, errOut)
		}
	}
	serve(t, "--database-url", db.URL, "--stored-rooms", "kept", "--room-history", "1d", "--room-history-bytes", "10GB").stop(t)
	serve(t, "--database-url", db.URL, "--stored-rooms", "kept").stop(t) // leaves it
	log, err := stream.Lookup(t.Context(), db.Pool, "tidewire.rooms")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := log.Retention(t.Context()); err != nil || got != (stream.Retention{MaxAge: 24 * time.Hour, MaxBytes: 10 << 30}) {
		t.Errorf("kept: %+v, %v", got, err)
	}
	p := serve(t, "--database-url", db.URL, "--stored-rooms", "kept", "--room-history", "100ms")
	if got, err := log.Retention(t.Context()); err != nil || got != (stream.Retention{MaxAge: 100 * time.Millisecond}) {
		t.Errorf("kept: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // that of the server looks less often
		stream.NewRetentionWorker(db.Pool, stream.RetentionWorkerConfig{Every: 20 * time.Millisecond}).Run(ctx)
	})
	defer running.Wait()
	defer cancel()
	c := &chatReader{t: t, conn: chatDial(t, p.addr)}
	say(c.conn, `{"type":"join","room":"kept","id":1}`)
	c.answer()
	oldest := int64(1)
	for n := 0; oldest < 3; n++ {
		say(c.conn, `{"type":"chat","room":"kept","text":"%d","id":2}`, n)
		if got := c.answer(); got.Type != "ok" {
			t.Fatalf("%+v", got)
		}
		time.Sleep(20 * time.Millisecond)
		if oldest, err = log.Oldest(t.Context()); err != nil || n > 1000 {
			t.Fatalf("after %d chats: %v", n, err)
		}
	}
	cancel()
	running.Wait()
	if err := log.SetRetention(t.Context(), stream.Retention{}); err != nil { // the server deletes nothing more
		t.Fatal(err)
	}
	member := &chatReader{t: t, conn: chatDial(t, p.addr)}
	say(member.conn, `{"type":"join","room":"kept","after":1,"id":3}`)
	if got := member.answer(); got.Code != "too_old" || got.Oldest < 3 {
		t.Errorf("a join after 1: %+v", got)
	}
	resp, err := http.Get("http://" + p.addr + "/v1/rooms/kept/chats?after=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var refused struct{ Error chatAnswer }
	if json.NewDecoder(resp.Body).Decode(&refused); resp.StatusCode != http.StatusGone || refused.Error.Code != "too_old" || refused.Error.Oldest < 3 {
		t.Errorf("a read after 1: %d %+v", resp.StatusCode, refused)
	}
	for _, join := range []string{`"after":0`, `"history":1000`, fmt.Sprintf(`"after":%d`, refused.Error.Oldest-1)} {
		member := &chatReader{t: t, conn: chatDial(t, p.addr)}
		say(member.conn, `{"type":"join","room":"kept","id":4,%s}`, join)
		for got := member.answer(); got.Type != "ok"; got = member.answer() {
			if got.Type == "error" || got.Position < refused.Error.Oldest && got.Position > 0 {
				t.Fatalf("%s: %+v", join, got)
			}
		}
	}
}

// answer returns the next message, decoded.
func (r *chatReader) answer() (a chatAnswer) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.next()), &a); err != nil {
		r.t.Fatal(err)
	}
	return a
}
