package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Server is a PostgreSQL that this process owns. Safe for concurrent use.
type Server struct {
	cfg  Config
	dir  layout
	as   account
	lock *os.File

	busy chan struct{} // one slot: stopping and starting take turns

	mu       sync.Mutex // guards what follows
	bins     binaries
	proc     *process
	url      string
	version  string
	attached bool
	detached bool
	closed   bool
}

// URL is how clients reach the database. It stays the same over a Restart.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// PID is the postmaster's process id; its children are the rest of PostgreSQL.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid
}

// Version is what PostgreSQL says it is, like "18.3".
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// BinDir is where PostgreSQL's binaries are.
func (s *Server) BinDir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bins.dir
}

// DataDir is the data directory, without symbolic links.
func (s *Server) DataDir() string { return s.dir.dir }

// LogFile is the path of PostgreSQL's log.
func (s *Server) LogFile() string { return s.dir.log() }

// Attached tells whether Start found PostgreSQL already running.
func (s *Server) Attached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached
}

// Running tells whether the postmaster is alive. The postmaster restarts its own
// children; if it has ended itself, Restart starts it again.
func (s *Server) Running() bool {
	s.mu.Lock()
	proc := s.proc
	s.mu.Unlock()
	return proc.alive()
}

// Stop ends PostgreSQL, unless it is detached (Config.Detach, or attached to a
// detached one), and releases the data directory. It closes connections and rolls
// back open transactions. If ctx ends or Config.StopTimeout passes, it ends PostgreSQL
// immediately, with SIGKILL if that is frozen. The error is then ErrNotClean, and the
// next start recovers; no commit is lost. If ctx has a deadline, Stop returns by then.
// A second Stop does nothing.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.turn(ctx); err != nil {
		return err
	}
	defer func() { <-s.busy }()
	s.mu.Lock()
	proc, closed, detached := s.proc, s.closed, s.detached
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if !detached {
		err = s.dir.end(ctx, proc, s.cfg.StopTimeout)
	}
	disown(proc)
	return errors.Join(err, release(s.lock))
}

// Restart stops PostgreSQL if it runs, and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	return s.exclusive(ctx, func(proc *process) error {
		if err := proc.stop(ctx, s.cfg.StopTimeout); err != nil && !errors.Is(err, ErrNotClean) {
			return err
		}
		disown(proc)
		return s.startProcess(ctx)
	})
}

// Kill ends the postmaster and all its children with SIGKILL, like a crash, for crash
// tests. Restart recovers.
func (s *Server) Kill(ctx context.Context) error {
	return s.exclusive(ctx, func(proc *process) error { return proc.kill(ctx) })
}

// Freeze suspends the postmaster and all its children, to simulate a machine that hangs: their sockets stay open, and nobody
// answers. Kill and Stop still work.
func (s *Server) Freeze(ctx context.Context) error {
	return s.exclusive(ctx, (*process).freeze)
}

// Thaw resumes a frozen server. It does nothing if the server has ended.
func (s *Server) Thaw(ctx context.Context) error {
	return s.exclusive(ctx, (*process).thaw)
}

func (s *Server) exclusive(ctx context.Context, do func(*process) error) error {
	if err := s.turn(ctx); err != nil {
		return err
	}
	defer func() { <-s.busy }()
	s.mu.Lock()
	proc, closed := s.proc, s.closed
	s.mu.Unlock()
	if closed {
		return fmt.Errorf("%w: it was stopped", ErrNotRunning)
	}
	return do(proc)
}

// turn waits for a running Restart, Kill or Stop. If there is none it succeeds even
// after ctx has ended, because Stop has work to do then too.
func (s *Server) turn(ctx context.Context) error {
	select {
	case s.busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
