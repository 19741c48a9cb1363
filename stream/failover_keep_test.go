package stream_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// lookUpWith returns a stream that uses pool, after creating it through maker.
func lookUpWith(t *testing.T, maker, pool *pgxpool.Pool, name string, opts stream.Options) *stream.Stream {
	t.Helper()
	if _, err := stream.Ensure(t.Context(), maker, name, opts); err != nil {
		t.Fatal(err)
	}
	s := lookUp(t, pool, name)
	return s
}

// TestFailover_Requests: a lost request is stored when it is repeated, and a kept one is not stored again. A
// repetition returns the position of the message.
func TestFailover_Requests(t *testing.T) {
	t.Parallel()
	for name, opts := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			p.Unsynchronised(t)
			pool := bothOf(t, p)
			s := lookUpWith(t, p.Pool, pool, "orders", opts)
			a := run(t, pool, s, stream.AppenderConfig{})
			request := func(sequence int64) stream.Appended {
				t.Helper()
				stored, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: sequence}, stream.Message{Payload: []byte("x")})
				if err != nil {
					t.Fatal(err)
				}
				return stored
			}
			var before []stream.Appended
			for sequence := range int64(5) {
				before = append(before, request(sequence))
			}
			kept := time.Now()
			time.Sleep(10 * time.Millisecond) // PostgreSQL's clock is the same
			p.CatchUp(t)
			p.Detach(t)
			for sequence := int64(5); sequence < 8; sequence++ {
				before = append(before, request(sequence))
			}
			p.Promote(t)
			for sequence := int64(7); sequence >= 0; sequence-- {
				stored := request(sequence)
				if isKept := sequence < 5; stored.Duplicate != isKept || isKept != (stored.First == before[sequence].First) {
					t.Errorf("sequence %d: %+v, before the failover %+v", sequence, stored, before[sequence])
				}
				if again := request(sequence); !again.Duplicate || again.First != stored.First {
					t.Errorf("sequence %d again: %+v, want the position of %+v", sequence, again, stored)
				}
			}
			hub, _ := runHub(t, pool, stream.HubConfig{})
			if page := next(t, subscribe(t, hub, s, stream.AtTime(kept))); page[0].Position <= before[7].First {
				t.Errorf("since the time of what is lost: begins at %d", page[0].Position)
			}
			if all := everything(t, s); len(all) != 8 {
				t.Errorf("%d messages, want 8", len(all))
			}
		})
	}
}

// TestFailover_Retention: a reader at a lost position gets an error, also if all earlier messages have been
// dropped and none has come since.
func TestFailover_Retention(t *testing.T) {
	t.Parallel()
	for name, opts := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			p.Unsynchronised(t)
			pool := bothOf(t, p)
			s := lookUpWith(t, p.Pool, pool, "orders", opts)
			a := run(t, pool, s, stream.AppenderConfig{})
			kept := appendEach(t, a, "kept", 20)
			p.CatchUp(t)
			p.Detach(t)
			lost := appendEach(t, a, "lost", 10)
			after := p.Promote(t)
			if _, err := migrate.EnterHistory(t.Context(), after); err != nil {
				t.Fatal(err)
			}
			s = lookUp(t, after, "orders")
			check := func(when string) {
				t.Helper()
				for _, position := range []int64{lost[0], lost[9], lost[9] + 5} {
					_, err := s.Read(t.Context(), position, 3)
					wantLost(t, when, err, kept[19])
				}
				if page, err := s.Read(t.Context(), kept[19], 3); err != nil || len(page) > 0 {
					t.Errorf("%s: after the last that is kept: %d messages, %v", when, len(page), err)
				}
			}
			check("at once")
			keep(t, after)
			alter(t, after, s, stream.Retention{MaxAge: time.Millisecond})
			waitInfo(t, s, "all are dropped", func(i stream.Info) bool { return i.Oldest == kept[19]+1 })
			check("when all are dropped")
			alter(t, after, s, stream.Retention{})
			fresh := mustAppend(t, run(t, after, s, stream.AppenderConfig{}), stream.Message{})
			if page, err := s.Read(t.Context(), fresh-1, 3); err != nil || len(page) != 1 {
				t.Errorf("the new message: %d, %v", len(page), err)
			}
			for _, position := range []int64{lost[0], lost[9]} {
				if _, err := s.Read(t.Context(), position, 3); !errors.Is(err, stream.ErrHistoryLost) && !errors.Is(err, stream.ErrTooOld) {
					t.Errorf("after %d, with a new message: %v", position, err)
				}
			}
		})
	}
}

// TestFailover_LossesAreLookedForAgain: if the first check after a failover fails because PostgreSQL does not
// answer, the next check finds the losses.
func TestFailover_LossesAreLookedForAgain(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	pool := bothOf(t, p)
	s := lookUpWith(t, p.Pool, pool, "orders", stream.Options{})
	looked := make(chan struct{}, 1)
	log := slog.New(slog.NewTextHandler(logFunc(func(line string) {
		if strings.Contains(line, "search for messages lost") {
			select {
			case looked <- struct{}{}:
			default:
			}
		}
	}), nil))
	hub, _ := runHub(t, pool, stream.HubConfig{Poll: 100 * time.Millisecond, Log: log})
	a := run(t, pool, s, stream.AppenderConfig{Hub: hub})
	appendEach(t, a, "kept", 5)
	rename := func(pool *pgxpool.Pool, from, to string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(`ALTER FUNCTION tidewire.%s RENAME TO %s`, from, to)); err != nil {
			t.Fatal(err)
		}
	}
	rename(p.Pool, "last_kept", "last_kept_away")
	p.CatchUp(t)
	p.Detach(t)
	appendEach(t, a, "lost", 10)
	after := p.Promote(t)
	<-looked
	if n := hub.Lost(); n != 0 {
		t.Errorf("%d positions are said to be lost before anybody could look", n)
	}
	rename(after, "last_kept_away", "last_kept")
	for deadline := time.Now().Add(30 * time.Second); hub.Lost() == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := hub.Lost(); n != 10 {
		t.Errorf("%d positions are said to be lost, want 10", n)
	}
}
