package gateway_test

import (
	"fmt"
	"testing"
)

// TestStored_AFailoverLosesChats: members that received lost chats are told,
// and nobody gets a lost position for resuming.
func TestStored_AFailoverLosesChats(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	member, outsider := dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws")
	send(t, outsider, `{"type":"join","room":"loose","id":0}`)
	expect(t, outsider, `{"id":0,"type":"ok"}`)
	send(t, member, `{"type":"join","room":"kept-1","id":0}`)
	expect(t, member, `{"history":0,"id":0,"position":0,"type":"ok"}`)
	say := func(n int) {
		send(t, member, fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%d","id":%d}`, n, n))
		expect(t, member, fmt.Sprintf(`{"id":%d,"position":%d,"type":"ok"}`, n, n))
	}
	for n := 1; n <= 6; n++ {
		say(n)
	}
	store.lose(5)
	expect(t, member, `{"type":"history_lost","room":"kept-1","last":4,"up_to":6}`)
	joins := func(after int64, want ...string) {
		t.Helper()
		c := dial(t, "ws://"+addr+"/ws")
		send(t, c, fmt.Sprintf(`{"type":"join","room":"kept-1","id":9,"after":%d}`, after))
		expect(t, c, want...)
	}
	lost := `{"code":"history_lost","id":9,"last":4,"message":"the position is after the end, or a failover has lost it: discard what you have after last, and continue there","retryable":false,"type":"error"}`
	joins(6, lost)
	joins(4, `{"history":0,"id":9,"position":4,"type":"ok"}`)
	say(7)
	joins(5, lost)
	joins(4, `{"type":"chat","room":"kept-1","text":"7","position":7}`, `{"history":1,"id":9,"position":7,"type":"ok"}`)
	send(t, outsider, `{"type":"ping","ts":1}`)
	expect(t, outsider, `{"ts":1,"type":"pong"}`) // it got no notice
}

// TestStored_AJoinHasTheChatsOfOtherServers: the history of a join has the
// chats that other servers stored before it.
func TestStored_AJoinHasTheChatsOfOtherServers(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	for n, join := range []string{`"after":0`, `"history":10`} {
		store.put("kept-1", `{"type":"chat","room":"kept-1","text":"elsewhere"}`)
		want := make([]string, 0, 3)
		for position := range n + 1 {
			want = append(want, fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"elsewhere","position":%d}`, position+1))
		}
		c := dial(t, "ws://"+addr+"/ws")
		send(t, c, fmt.Sprintf(`{"type":"join","room":"kept-1","id":9,%s}`, join))
		expect(t, c, append(want, fmt.Sprintf(`{"history":%d,"id":9,"position":%d,"type":"ok"}`, n+1, n+1))...)
	}
}
