package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// maxPrepared is how many sets of statements a session keeps prepared: each takes
	// some 50 KiB of PostgreSQL's memory.
	maxPrepared = 256
	// staysPrepared is how long after its last use a set counts as in use, for HasRoom.
	staysPrepared = 10 * time.Second
)

// Session is a connection to write on, with its settings and prepared statements. Only
// the borrower uses it: see Lender.
type Session struct {
	pool     *pgxpool.Pool
	conn     *writerConn
	differs  bool // the database's defaults are not what a writer needs
	prepared map[any]*preparedSet

	// Guarded by the Lender.
	aside    bool      // it counts as set aside for slow borrowers
	borrowed time.Time // zero while it is not lent
	slow     *time.Timer
	opened   time.Time // the connection
	used     time.Time // when it was returned
}

type preparedSet struct {
	names []string
	used  time.Time
}

// Names of the statements that each session has prepared.
const (
	StmtCommit = "tidewire_commit"

	stmtBegin = "tidewire_begin"
	stmtWait  = "tidewire_wait"
)

// sessionWait is the lock_timeout outside of the transactions. It also applies to other
// clients if a pooler shares the connection with them.
const sessionWait = 10 * time.Second

// Connect opens the connection, unless it is open. A transaction that an earlier
// connection has left behind can only commit before this one gets the lock.
func (s *Session) Connect(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	conn, err := acquireWriter(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("connect writer: %w", err)
	}
	s.conn, s.prepared, s.opened = conn, make(map[any]*preparedSet), time.Now()
	if err := s.open(ctx); err != nil {
		s.Close()
		return fmt.Errorf("prepare writer: %w", err)
	}
	return nil
}

func (s *Session) open(ctx context.Context) error {
	settings, err := OpenWriter(ctx, s.Conn(), sessionWait)
	if err != nil {
		return err
	}
	s.differs = settings != ""
	return s.prepare(ctx, map[string]string{
		stmtBegin: `BEGIN ISOLATION LEVEL READ COMMITTED`, stmtWait: s.Settings(ShortWait), StmtCommit: `COMMIT`,
	})
}

// SendBegin sends the statements that begin a transaction, and returns their number. wait
// bounds the transaction's wait for each lock.
func (s *Session) SendBegin(p *pgconn.Pipeline, wait time.Duration) int {
	p.SendQueryPrepared(stmtBegin, nil, nil, nil)
	if wait == ShortWait {
		p.SendQueryPrepared(stmtWait, nil, nil, nil)
	} else {
		p.SendQueryParams(s.Settings(wait), nil, nil, nil, nil)
	}
	return 2
}

// Settings returns the statement that SendBegin sends after BEGIN.
func (s *Session) Settings(wait time.Duration) string {
	if s.differs {
		return WriterSettings(wait)
	}
	return fmt.Sprintf(`SELECT set_config('lock_timeout', '%d', true)`, milliseconds(wait))
}

// Conn returns the connection, or nil if none is open.
func (s *Session) Conn() *pgx.Conn {
	if s.conn == nil {
		return nil
	}
	return s.conn.Conn
}

// Close ends the connection. It does not go back to the pool, because it has settings
// and statements of Tidewire's writers. Connect opens another.
func (s *Session) Close() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.conn.Close(ctx)
	s.conn.release(ctx)
	s.conn, s.prepared = nil, nil
}

// CloseIfLost closes a connection that broke.
func (s *Session) CloseIfLost() {
	if s.conn != nil && s.Conn().IsClosed() {
		s.Close()
	}
}

// Recover rolls back after a transaction that ended with err, or closes the connection if
// it is lost. It returns err, or the error of the rollback if that fails.
func (s *Session) Recover(ctx context.Context, err error) error {
	if s.Conn().IsClosed() {
		s.Close()
		return err
	}
	if _, rollbackErr := s.conn.Exec(ctx, `ROLLBACK`); rollbackErr != nil {
		s.Close()
		return rollbackErr // if err persists, the next attempt gets it again
	}
	return err
}

// Prepared reports whether the set of statements of that key is prepared.
func (s *Session) Prepared(key any) bool {
	set := s.prepared[key]
	if set != nil {
		set.used = time.Now()
	}
	return set != nil
}

// HasRoom reports whether another set can be prepared without evicting one that is in
// use.
func (s *Session) HasRoom() bool {
	_, oldest := s.oldest()
	return len(s.prepared) < maxPrepared || time.Since(oldest.used) >= staysPrepared
}

// Prepare prepares a set of statements, a map from names to SQL, unless the set of that
// key is prepared already. If there are maxPrepared sets, it evicts the least recently
// used one.
func (s *Session) Prepare(ctx context.Context, key any, statements map[string]string) error {
	if s.Prepared(key) {
		return nil
	}
	if len(s.prepared) >= maxPrepared {
		gone, set := s.oldest()
		for _, name := range set.names {
			if err := s.Conn().PgConn().Deallocate(ctx, name); err != nil {
				return err
			}
		}
		delete(s.prepared, gone)
	}
	if err := s.prepare(ctx, statements); err != nil {
		return err
	}
	set := &preparedSet{used: time.Now()}
	for name := range statements {
		set.names = append(set.names, name)
	}
	s.prepared[key] = set
	return nil
}

func (s *Session) oldest() (key any, set *preparedSet) {
	for k, p := range s.prepared {
		if set == nil || p.used.Before(set.used) {
			key, set = k, p
		}
	}
	return key, set
}

// prepare prepares all in one round trip.
func (s *Session) prepare(ctx context.Context, statements map[string]string) error {
	p := s.Conn().PgConn().StartPipeline(ctx)
	for name, sql := range statements {
		p.SendPrepare(name, sql, nil)
	}
	if err := p.Sync(); err != nil {
		p.Close()
		return err
	}
	return p.Close() // reads the results
}
