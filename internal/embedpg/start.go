package embedpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const port = "5432" // only a part of the socket's name

// Start starts the PostgreSQL of a data directory, creates what is missing, and
// returns when PostgreSQL answers. If one already runs there, Start adopts it: one that
// a killed owner has left ends with this process, a detached one continues to run.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	dir, major, err := openLayout(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	as, err := runAs(dir.pgdata())
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, dir: dir, as: as, busy: make(chan struct{}, 1)}
	if major == 0 {
		// Without binaries not even the directory is made.
		if s.bins, err = findBinaries(ctx, cfg, as, 0); err != nil {
			return nil, err
		}
	}
	if err := dir.create(as); err != nil {
		return nil, err
	}
	if s.lock, err = dir.own(ctx); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, release(s.lock))
	}
	if s.detached {
		disown(s.proc)
	}
	return s, nil
}

// open does the rest of Start as the owner. It reads the directory again, because it may
// have changed before this process owned it.
func (s *Server) open(ctx context.Context) error {
	var err error
	var major int
	if s.dir, major, err = openLayout(s.dir.dir); err != nil {
		return err
	}
	if err := s.dir.sweep(); err != nil {
		return err
	}
	s.detached = s.dir.isDetached()
	if major != 0 {
		attached, err := s.attach(ctx, major)
		if err != nil {
			return err
		}
		if !attached {
			if s.bins, err = findBinaries(ctx, s.cfg, s.as, major); err != nil {
				return err
			}
		}
	}
	if s.proc == nil {
		if err := errors.Join(s.as.canEnter(s.dir.dir), s.as.canEnter(s.bins.dir)); err != nil {
			return err
		}
		if major == 0 {
			if err := s.fill(ctx); err != nil {
				return err
			}
		}
		// An earlier detached PostgreSQL has ended, for example by a reboot. The new
		// one is detached only if the configuration says so.
		s.detached = false
		if err := s.startProcess(ctx); err != nil {
			return err
		}
	}
	s.detached = s.detached || s.cfg.Detach
	if err := s.dir.setDetached(s.detached); err != nil {
		return errors.Join(err, s.proc.stop(ctx, s.cfg.StopTimeout))
	}
	return nil
}

// fill creates the data in a new directory.
func (s *Server) fill(ctx context.Context) error {
	if s.cfg.Primary != nil {
		return s.dir.copyPrimary(ctx, s.cfg, s.as)
	}
	return s.dir.initdb(ctx, s.cfg, s.as, s.bins)
}

// attach adopts a postmaster that already runs. It waits for one that is just starting
// or ending, so that there are never two.
func (s *Server) attach(ctx context.Context, major int) (bool, error) {
	p, running, err := s.dir.running()
	if err != nil || !running {
		return false, err
	}
	if s.cfg.Version != 0 && s.cfg.Version != major {
		return false, fmt.Errorf("%w: PostgreSQL %d runs in %s, but version %d was requested: leave the version out, or choose another data directory", ErrOtherMajor, major, s.dir.dir, s.cfg.Version)
	}
	s.cfg.Progress(fmt.Sprintf("PostgreSQL already runs as process %d", p.pid))
	proc := &process{pid: p.pid, dir: s.dir}
	bound, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	ended := errors.New("ended")
	err = s.awaitReady(bound, proc, ended)
	switch {
	case errors.Is(err, ended):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: process %d, which runs in %s, does not get ready: %w", ErrStart, p.pid, s.dir.dir, err)
	}
	s.bins = binaries{dir: s.dir.startedFrom(), major: major}
	if s.bins.dir == "" { // a Restart will want them
		if s.bins, err = findBinaries(ctx, s.cfg, s.as, major); err != nil {
			return false, err
		}
	}
	if err := s.greet(ctx, proc); err != nil {
		// A postmaster just killed still counts as running for a moment.
		dying, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if proc.await(dying) == nil {
			return false, nil
		}
		return false, err
	}
	s.attached = true
	if !s.detached {
		own(proc)
	}
	return true, nil
}

// startedFrom returns the directory of the running postgres binary, or "".
func (l layout) startedFrom() string {
	text, err := readAll(filepath.Join(l.pgdata(), "postmaster.opts"))
	path, _, ok := strings.Cut(string(text), ` "`)
	if err != nil || !ok {
		return ""
	}
	return filepath.Dir(path)
}

// startProcess starts PostgreSQL in a directory where none runs.
func (s *Server) startProcess(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	if err := s.dir.writeAccess(s.as); err != nil {
		return err
	}
	sockets, err := s.dir.makeSocketDir(s.as)
	if err != nil {
		return err
	}
	// Backends of a killed postmaster may still run a long computation and use its
	// shared memory; PostgreSQL refuses to start until they have ended.
	patience, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		proc, said, err := s.spawn(ctx, sockets)
		if err == nil {
			return s.greet(ctx, proc)
		}
		if !strings.Contains(said, "pre-existing shared memory") {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-patience.Done():
			return fmt.Errorf("%w\n  Processes of an earlier PostgreSQL still run in %s: end them", err, s.dir.pgdata())
		}
	}
}

// spawn starts postgres once and waits until it is ready. If it fails, spawn also returns
// its last lines of output.
func (s *Server) spawn(ctx context.Context, sockets string) (*process, string, error) {
	if err := s.dir.disarm(s.as); err != nil {
		return nil, "", s.dir.notWritable(err)
	}
	if err := s.dir.clearSocket(); err != nil {
		return nil, "", err
	}
	log, offset, err := s.dir.openLog()
	if err != nil {
		return nil, "", s.dir.notWritable(err)
	}
	defer log.Close()

	settings := map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": `"` + strings.ReplaceAll(sockets, `"`, `""`) + `"`,
		// Start reads the reason of a failure from stderr.
		"log_destination":   "stderr",
		"logging_collector": "off",
	}
	maps.Copy(settings, s.cfg.Settings)
	args := []string{"-D", s.dir.pgdata()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	// Not ctx, which only bounds the start: PostgreSQL has to outlive it.
	cmd := s.as.command(context.Background(), s.cfg.childEnv(), s.bins.path("postgres"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := startOwned(cmd, s.dir)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrStart, err)
	}
	ended := errors.New("it ended")
	if err := s.awaitReady(ctx, proc, ended); err != nil {
		if !errors.Is(err, ended) {
			err = errors.Join(err, proc.stop(context.WithoutCancel(ctx), time.Second))
		}
		disown(proc)
		said := tail(s.dir.log(), offset)
		return nil, said, fmt.Errorf("%w in %s: %w; the last lines of %s:\n%s", ErrStart, s.dir.dir, err, s.dir.log(), said)
	}
	return proc, "", nil
}

// awaitReady waits until the postmaster accepts connections. It returns ended if the
// postmaster ends instead.
func (s *Server) awaitReady(ctx context.Context, proc *process, ended error) error {
	return poll(ctx, func() (bool, error) {
		if !proc.alive() {
			return false, ended
		}
		p, ok, err := s.dir.readPID()
		if err != nil || !ok || p.pid != proc.pid || p.status != "ready" {
			return false, err
		}
		return true, nil
	})
}

// greet connects, which also verifies the access rules, and creates the database if it
// is missing.
func (s *Server) greet(ctx context.Context, proc *process) error {
	p, _, err := s.dir.readPID()
	if err != nil {
		return s.dir.notWritable(err)
	}
	ask := createDatabase
	if s.cfg.Primary != nil { // a standby has its primary's database
		ask = askVersion
	}
	version, err := ask(ctx, databaseURL(p.socketDir, p.port, "postgres"))
	if err != nil {
		if proc.child {
			proc.stop(context.WithoutCancel(ctx), s.cfg.StopTimeout)
		}
		disown(proc)
		return fmt.Errorf("%w: it rejects Tidewire's connection: %w; the last lines of %s:\n%s", ErrStart, err, s.dir.log(), tail(s.dir.log(), 0))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.url, s.version = proc, p.url(), version
	return nil
}
