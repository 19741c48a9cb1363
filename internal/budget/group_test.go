package budget

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGroup_IsEvictedBeforeALargerHolder: many small holders of one client are evicted before one of another client that is larger than each, and
// only as many as needed.
func TestGroup_IsEvictedBeforeALargerHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(16 * mib)
		single := open(b, 0)
		single.Take(Output, 3*mib)
		var many []*client
		for range 24 {
			c := open(b, 0)
			c.Join("many")
			c.Take(Output, mib/2)
			many = append(many, c)
		}
		small := open(b, 0)
		small.Take(Output, 2*mib) // more than the limit
		synctest.Wait()
		evicted := 0
		for _, c := range many {
			if c.evicted.Load() {
				evicted++
			}
		}
		if single.evicted.Load() || small.evicted.Load() || evicted != 2 {
			t.Errorf("evicted: the single one %v, the last %v, %d of the group, want two", single.evicted.Load(), small.evicted.Load(), evicted)
		}
	})
}

// TestGroup_WaitsAsOne: a new holder of a client that holds much waits, and the first of another client does not.
func TestGroup_WaitsAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(16 * mib)
		for range 24 {
			c := open(b, time.Hour)
			c.Join("many")
			c.Take(Output, mib/2) // 12 MiB in all: the mark
		}
		fresh, other := open(b, time.Hour), open(b, time.Hour)
		fresh.Join("many")
		first := fresh.reserve(mib)
		synctest.Wait()
		waits(t, "a new one of the group", first)
		second := other.reserve(mib)
		synctest.Wait()
		select {
		case err := <-second:
			check(t, "another client", err, nil)
		default:
			t.Error("another client waits")
		}
		fresh.Join("") // it is known now that it is somebody else
		synctest.Wait()
		select {
		case err := <-first:
			check(t, "after it has left the group", err, nil)
		default:
			t.Error("it still waits")
		}
	})
}

// TestGroup_SharesAmongMembers: if all holders are of one group, the one that holds much waits, and the others do not: as without a group.
func TestGroup_SharesAmongMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(16 * mib)
		large := open(b, time.Hour)
		large.Join("all")
		large.Take(Output, 12*mib) // the mark
		more := large.reserve(mib)
		synctest.Wait()
		waits(t, "the large one", more)
		for range 3 {
			small := open(b, time.Hour)
			small.Join("all")
			select {
			case err := <-small.reserve(mib):
				check(t, "a small one", err, nil)
			case <-time.After(time.Second):
				t.Fatal("a small one waits")
			}
		}
		waits(t, "the large one", more)
		large.Close()
		check(t, "the large one, after its end", <-more, ErrClosed)
	})
}
