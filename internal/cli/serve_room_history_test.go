package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// TestServe_RoomHistory: old chats of stored rooms are deleted, and a reader that comes back after them is told, on /ws/chat and by HTTP.
func TestServe_RoomHistory(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	serve(t, "--database-url", db.URL, "--stored-rooms", "kept", "--room-history", "1d", "--room-history-bytes", "10GB").Stop(t)
	log, err := stream.Lookup(t.Context(), db.Pool, "tidewire.rooms")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--database-url", db.URL, "--stored-rooms", "kept") // leaves it
	if got, err := log.Retention(t.Context()); err != nil || got != (stream.Retention{MaxAge: 24 * time.Hour, MaxBytes: 10 << 30}) {
		t.Errorf("kept: %+v, %v", got, err)
	}
	for n := range 5 {
		asked{"POST /v1/rooms/kept/chats", fmt.Sprintf(`{"text":"%d"}`, n), 200, `"position"`}.of(t, p.Addr)
	}
	p.Stop(t)
	p = serve(t, "--database-url", db.URL, "--stored-rooms", "kept", "--room-history", "100ms")
	if got, err := log.Retention(t.Context()); err != nil || got != (stream.Retention{MaxAge: 100 * time.Millisecond}) {
		t.Errorf("kept: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // that of the server looks less often
		stream.NewRetentionWorker(db.Pool, stream.RetentionWorkerConfig{Every: 20 * time.Millisecond}).Run(ctx)
	})
	testkit.Eventually(t, "old chats are deleted", func() bool {
		oldest, err := log.Oldest(t.Context())
		return err == nil && oldest > 5
	})
	cancel()
	running.Wait()
	if err := log.SetRetention(t.Context(), stream.Retention{}); err != nil { // the server deletes nothing more
		t.Fatal(err)
	}
	answer := asked{"POST /v1/rooms/kept/chats", `{"text":"new"}`, 200, `{"position":`}.of(t, p.Addr)
	_, only, _ := strings.Cut(answer, ":")
	only = "[" + strings.TrimSuffix(only, "}") + "] "
	asked{"GET /v1/rooms/kept/chats?after=1", "", 410, `"code":"too_old"`}.of(t, p.Addr)
	for join, want := range map[string]string{`"after":1`: "[] too_old", `"after":0`: only, `"history":1000`: only} {
		if got := joined(t, p.Addr, "kept", join); got != want {
			t.Errorf("join with %s: %s, want %s", join, got, want)
		}
	}
}

// joined joins a room, and returns the positions of the history, and the code of the error.
func joined(t *testing.T, addr, room, join string) string {
	t.Helper()
	member := &chatReader{t: t, conn: chatDial(t, addr)}
	defer member.conn.Abort()
	say(member.conn, `{"type":"join","room":"%s","id":4,%s}`, room, join)
	positions := []int64{}
	got := member.answer()
	for ; got.Type == "chat"; got = member.answer() {
		positions = append(positions, got.Position)
	}
	return fmt.Sprint(positions, " ", got.Code)
}

// TestServe_RoomHistoryCount: each stored room shows its last chats, however they are read, and a reader that comes back after them is told. A room with fewer
// chats than that shows all, also to readers that come back from before its first one.
func TestServe_RoomHistoryCount(t *testing.T) {
	t.Parallel()
	p := serve(t, "--database-url", migrated(t).URL, "--stored-rooms", "kept-*", "--room-history-count", "3")
	for n := range 6 { // positions 1 to 5, and 6 in the other room
		room := map[bool]string{true: "kept-few", false: "kept-many"}[n == 5]
		asked{"POST /v1/rooms/" + room + "/chats", fmt.Sprintf(`{"text":"%d"}`, n), 200, `"position"`}.of(t, p.Addr)
	}
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
		_, text := request(t, "GET", p.Addr, "/v1/rooms/"+read.room+"/chats"+read.query, "")
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(text, err)
		}
		var got []int64
		for _, chat := range page.Chats {
			got = append(got, chat.Position)
		}
		if !slices.Equal(got, read.want) || page.Error.Oldest != read.tooOld {
			t.Errorf("%s%s: %v, %+v", read.room, read.query, got, page.Error)
		}
	}
	for join, want := range map[string]string{`"after":0`: "[3 4 5] ", `"history":1000`: "[3 4 5] ", `"history":2`: "[4 5] ", `"after":1`: "[] too_old", `"after":2`: "[3 4 5] "} {
		if got := joined(t, p.Addr, "kept-many", join); got != want {
			t.Errorf("join with %s: %s, want %s", join, got, want)
		}
	}
}
