package room

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// ear is the outlet of a room, which keeps what is sent to other nodes about who is there.
type ear struct{ heard []Presence }

func (*ear) Send(uint64, int, []byte) {}
func (*ear) Watch(bool)               {}
func (e *ear) Present(p Presence)     { e.heard = append(e.heard, p) }
func (*ear) Close()                   {}

// TestCensus: other nodes get who is in a room while they ask for it, all names at first and then changes, and again when they ask again.
func TestCensus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in *Inlet
		out := &ear{}
		hub := NewHub(Config{Connect: func(_ string, i *Inlet) Outlet { in = i; return out }})
		ann := hub.Join(nil, "r", JoinOptions{User: "ann", Hold: true})
		told := func(want ...Presence) {
			t.Helper()
			time.Sleep(batchPause)
			synctest.Wait()
			if !slices.EqualFunc(out.heard, want, func(a, b Presence) bool {
				return a.Whole == b.Whole && a.Count == b.Count && slices.Equal(a.Joined, b.Joined) && slices.Equal(a.Left, b.Left)
			}) {
				t.Errorf("told %+v, want %+v", out.heard, want)
			}
			out.heard = nil
		}
		for range 2 {
			in.Watched(false)
			told(Presence{Whole: true, Count: 1, Joined: []string{"ann"}})
			bob := hub.Join(nil, "r", JoinOptions{User: "bob", Hold: true})
			told(Presence{Count: 2, Joined: []string{"bob"}})
			bob.Leave()
			told(Presence{Count: 1, Left: []string{"bob"}})
			in.Watched(true)
			told(Presence{Whole: true, Count: 1, Joined: []string{"ann"}})
			time.Sleep(watchedFor - batchPause)
			synctest.Wait()
			hub.Join(nil, "r", JoinOptions{User: "carol", Hold: true}).Leave()
			told()
		}
		ann.Leave()
		synctest.Wait()
	})
}
