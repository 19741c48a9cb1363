package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// once starts a server at the first call of get.
type once struct {
	get func() (*embedpg.Server, error)

	mu   sync.Mutex // guards inst
	inst *instance
}

func newOnce(start func() (*instance, error)) *once {
	o := &once{}
	o.get = sync.OnceValues(func() (*embedpg.Server, error) {
		inst, err := start()
		if err != nil {
			return nil, err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.inst = inst
		return inst.server, nil
	})
	return o
}

func (o *once) stop() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inst == nil {
		return nil
	}
	return o.inst.stop()
}

// Serve starts a server for the processes of a test run, and calls run with its URL.
func Serve(run func(url string) error) error {
	inst, err := startShared()
	if err != nil {
		return err
	}
	return errors.Join(run(inst.server.URL()), inst.stop())
}

// startShared starts a server without fsync: its tests kill processes and
// not the machine, so they cannot notice that. Many tests of several processes run at the
// same time, each with a pool.
func startShared() (*instance, error) {
	cfg := config()
	cfg.Settings = map[string]string{"fsync": "off", "full_page_writes": "off", "max_connections": "600", "max_wal_size": "256MB"}
	return start(cfg, MemoryDir())
}

// config reads TIDEWIRE_TEST_PG.
func config() embedpg.Config {
	cfg := embedpg.Config{Getenv: os.Getenv, Progress: func(text string) {
		if strings.HasPrefix(text, "fetch") || strings.HasPrefix(text, "waiting") {
			fmt.Fprintln(os.Stderr, "pgtest:", text)
		}
	}}
	choice := os.Getenv("TIDEWIRE_TEST_PG")
	if filepath.IsAbs(choice) {
		cfg.BinDir = choice
		return cfg
	}
	kind, version, ok := strings.Cut(choice, ":")
	if !ok {
		kind, version = embedpg.Auto, choice
	}
	cfg.Binaries = kind
	if version != "" {
		major, err := strconv.Atoi(version)
		if err != nil {
			major = -1 // Start rejects it with an error
		}
		cfg.Version = major
	}
	return cfg
}

// instance is a server in a separate directory.
type instance struct {
	server *embedpg.Server
	dir    string
	guard  *guard
}

// start starts a server on a copy of the prepared cluster, or as a standby.
func start(cfg embedpg.Config, below string) (*instance, error) {
	if cfg.Primary != nil {
		return startNew(cfg, below)
	}
	return startOn(cfg, below, prepared())
}

// startNew starts a server on a cluster of its own, or as a standby.
func startNew(cfg embedpg.Config, below string) (*instance, error) { return startOn(cfg, below, "") }

// startOn starts a server on a copy of a data directory, if one is given.
func startOn(cfg embedpg.Config, below, copied string) (*instance, error) {
	// Not t.TempDir: its path contains the test's name, and a socket's path has to
	// be short. The mode of os.MkdirTemp would keep the unprivileged user out, so it
	// is changed below.
	dir, err := os.MkdirTemp(below, "tw-pg-")
	if err != nil {
		return nil, err
	}
	inst, err := startIn(dir, cfg, copied)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return inst, nil
}

func startIn(dir string, cfg embedpg.Config, copied string) (*instance, error) {
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	cfg.DataDir = filepath.Join(dir, "db")
	if copied != "" {
		if err := copyData(copied, cfg.DataDir); err != nil {
			return nil, err
		}
	}
	g, err := startGuard(dir, filepath.Join(cfg.DataDir, "pgdata", "postmaster.pid"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	srv, err := embedpg.Start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, g.dismiss())
	}
	return &instance{server: srv, dir: dir, guard: g}, nil
}

func (i *instance) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(i.server.Stop(ctx), i.guard.dismiss(), os.RemoveAll(i.dir))
}

func (i *instance) lastWords() string {
	text, err := os.ReadFile(i.server.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}

// guard is a shell that outlives this process, to stop its PostgreSQL and remove its
// files: a test that exceeds its time limit, panics or is killed cannot do so, and
// PostgreSQL runs in its own process group and survives.
type guard struct {
	cmd *exec.Cmd
}

func startGuard(dir, pidFile string) (*guard, error) {
	const script = `read -r _; pid=$(head -n 1 "$2" 2>/dev/null) && kill -QUIT "$pid"; sleep 1; rm -rf "$1"`
	cmd := exec.Command("/bin/sh", "-c", script, "pgtest-guard", dir, pidFile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Never written to: it closes when this process ends for any reason.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return &guard{cmd: cmd}, cmd.Start()
}

// dismiss ends the guard before its pipe closes.
func (g *guard) dismiss() error {
	err := g.cmd.Process.Kill()
	g.cmd.Wait() // says that it was killed
	return err
}
