package eventstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// stranding breaks the connection of the first append once armed, but only for the
// client: PostgreSQL receives the sent bytes much later.
type stranding struct {
	armed atomic.Bool
	held  chan strandedAttempt
}

type strandedAttempt struct {
	conn net.Conn
	sent []byte
}

// arrive has PostgreSQL get the attempt, and waits for its answer to all of it.
func (a strandedAttempt) arrive(t *testing.T) {
	t.Helper()
	defer a.conn.Close()
	if _, err := a.conn.Write(a.sent); err != nil {
		t.Fatal(err)
	}
	a.conn.SetReadDeadline(time.Now().Add(time.Minute))
	var answer []byte
	for chunk := make([]byte, 4096); !bytes.HasSuffix(answer, []byte("Z\x00\x00\x00\x05I")); {
		n, err := a.conn.Read(chunk)
		if err != nil {
			t.Fatalf("PostgreSQL answers %q: %v", answer, err)
		}
		answer = append(answer, chunk[:n]...)
	}
}

type strandable struct {
	net.Conn
	on   *stranding
	gone atomic.Bool
}

func (c *strandable) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("_append\x00")) && bytes.Contains(b, []byte(pg.StmtCommit)) && c.on.armed.CompareAndSwap(true, false) {
		c.gone.Store(true)
		c.on.held <- strandedAttempt{c.Conn, bytes.Clone(b)}
	}
	if c.gone.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *strandable) Read(b []byte) (int, error) {
	if c.gone.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

func (c *strandable) Close() error {
	if c.gone.Load() {
		return nil // arrive does
	}
	return c.Conn.Close()
}

func (s *stranding) pool(t *testing.T, db pgtest.DB) *pgxpool.Pool {
	t.Helper()
	return PoolThrough(t, db.URL+"&pool_max_conns=2", func(c net.Conn) net.Conn { return &strandable{Conn: c, on: s} })
}

// TestWriter_StrandedAttempt: an attempt that got no answer arrives when the batch marks of
// its time are deleted. It must still find the mark of the attempt that was committed.
func TestWriter_StrandedAttempt(t *testing.T) {
	t.Parallel()
	db, plain := prepared(t)
	network := &stranding{held: make(chan strandedAttempt, 1)}
	s, err := EnsureStore(t.Context(), network.pool(t, db), "", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	w := newWriter(s)
	defer w.on.Close()
	write := func() {
		t.Helper()
		c := newCall([]Event{{Type: "T"}}, 100, nil, &s.frequency)
		b, _ := w.assemble(t.Context(), []*call{c})
		w.write(t.Context(), b)
		if got := <-c.done; got.err != nil {
			t.Fatal(got.err)
		}
		swept(t, s)
	}
	network.armed.Store(true)
	write()
	stranded := <-network.held
	write()
	for range 3 { // each deletes what is before the number that the last one noted
		w.marks.since = time.Now().Add(-keepMarks)
		write()
	}
	stranded.arrive(t)
	var events int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.events_1`).Scan(&events); err != nil || events != 5 || plain.id != 1 {
		t.Errorf("%d events of %d batches, %v", events, 5, err)
	}
	var marks int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.events_1_batch`).Scan(&marks); err != nil || marks > 3 {
		t.Errorf("%d marks are left of 5, %v", marks, err)
	}
}

// TestAppend_OutcomeUnknown: the connection is lost after a batch was sent, and PostgreSQL rejects the next login.
func TestAppend_OutcomeUnknown(t *testing.T) {
	t.Parallel()
	db, _ := prepared(t)
	admin := db.Pool.Config().ConnConfig.Copy()
	name := admin.Database
	admin.Database = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	letIn := func(really bool) {
		if _, err := conn.Exec(context.Background(), fmt.Sprintf(`ALTER DATABASE %s ALLOW_CONNECTIONS %t`, name, really)); err != nil {
			t.Error(err)
		}
	}
	defer letIn(true)
	network := &stranding{held: make(chan strandedAttempt, 1)}
	s, err := EnsureStore(t.Context(), network.pool(t, db), "", Config{NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if _, err := s.Append(t.Context(), Event{Type: "Before"}); err != nil {
		t.Fatal(err)
	}
	letIn(false)
	network.armed.Store(true)
	if _, err := s.Append(t.Context(), Event{Type: "A"}); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrOutcomeUnknown", err)
	}
	(<-network.held).arrive(t)
	if _, err := s.Append(t.Context(), Event{Type: "B"}); err == nil || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("%v, want that nothing was stored", err)
	}
}
