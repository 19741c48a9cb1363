package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/stream"
)

// TestServe_RoomHistory: old chats of stored rooms are deleted, and a reader that comes back after them is told, on /ws/chat and by HTTP.
func TestServe_RoomHistory(t *testing.T) {
	t.Parallel()
	db := migrated(t)
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

// TestServe_RoomHistoryCount: each stored room shows its last chats, however they are read, and a reader that comes back after them is told. A room with fewer
// chats than that shows all, also to readers that come back from before its first one.
func TestServe_RoomHistoryCount(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for _, args := range [][]string{{"--room-history-count=3"}, {"--room-history-count=-1", "--stored-rooms=*"}, {"--room-history-count=10001", "--stored-rooms=*"}} {
		if code, _, errOut := run(t, nil, append([]string{"serve", "--database-url", db.URL, "--port", "0"}, args...)...); code != cli.ExitUsage || !strings.Contains(errOut, "--room-history-count") {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	p := serve(t, "--database-url", db.URL, "--stored-rooms", "kept-*", "--room-history-count", "3")
	for n := range 5 {
		speak(t, p.addr, "kept-many", n) // positions 1 to 5
	}
	speak(t, p.addr, "kept-few", 0) // position 6
	for _, read := range []struct {
		room, query string
		want        []int64
		tooOld      int64
	}{
		{"kept-many", "", []int64{3, 4, 5}, 0}, {"kept-many", "?after=0&limit=2", []int64{3, 4}, 0}, {"kept-many", "?last=1000", []int64{3, 4, 5}, 0}, {"kept-many", "?last=1", []int64{5}, 0},
		{"kept-many", "?after=1", nil, 3}, {"kept-many", "?after=2", []int64{3, 4, 5}, 0}, {"kept-many", "?after=4", []int64{5}, 0}, {"kept-many", "?after=6", nil, 0},
		{"kept-few", "", []int64{6}, 0}, {"kept-few", "?after=1", []int64{6}, 0}, {"kept-none", "?after=1", nil, 0},
	} {
		var page struct {
			Chats []chatAnswer
			Error chatAnswer
		}
		resp, err := http.Get("http://" + p.addr + "/v1/rooms/" + read.room + "/chats" + read.query)
		if err != nil {
			t.Fatal(err)
		}
		json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		var got []int64
		for _, chat := range page.Chats {
			got = append(got, chat.Position)
		}
		if !slices.Equal(got, read.want) || page.Error.Oldest != read.tooOld {
			t.Errorf("%s%s: %v, %+v", read.room, read.query, got, page.Error)
		}
	}
	for join, want := range map[string]string{`"after":0`: "[3 4 5]", `"history":1000`: "[3 4 5]", `"history":2`: "[4 5]", `"after":1`: "too_old", `"after":2`: "[3 4 5]"} {
		member := &chatReader{t: t, conn: chatDial(t, p.addr)}
		say(member.conn, `{"type":"join","room":"kept-many","id":4,%s}`, join)
		var positions []int64
		got := member.answer()
		for ; got.Type == "chat"; got = member.answer() {
			positions = append(positions, got.Position)
		}
		if text := fmt.Sprint(positions); got.Type == "ok" && text != want || got.Type == "error" && (got.Code != want || got.Oldest != 3) {
			t.Errorf("join with %s: %s, %+v", join, text, got)
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

// speak sends a chat by HTTP.
func speak(t *testing.T, addr, room string, n int) {
	t.Helper()
	resp, err := http.Post("http://"+addr+"/v1/rooms/"+room+"/chats", "application/json", strings.NewReader(fmt.Sprintf(`{"text":"%d"}`, n)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}
