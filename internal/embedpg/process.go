package embedpg

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

// process is a postmaster, ours or adopted. Nobody waits for it in a goroutine,
// which could not end while a detached one runs on: whoever asks, reaps.
type process struct {
	pid   int
	child bool
	dir   layout

	mu   sync.Mutex // guards gone, and that nobody signals a pid once reaped
	gone bool
}

func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aliveLocked()
}

func (p *process) aliveLocked() bool {
	if p.gone {
		return false
	}
	if p.child {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
		p.gone = pid == p.pid || errors.Is(err, syscall.ECHILD)
		return !p.gone
	}
	alive, err := p.dir.isPostmaster(p.pid)
	p.gone = err == nil && !alive
	return !p.gone
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aliveLocked() {
		syscall.Kill(p.pid, sig) // it may end right now, and then all is well
	}
}

// await waits for the end.
func (p *process) await(ctx context.Context) error {
	return poll(ctx, func() (bool, error) { return !p.alive(), nil })
}

// stop ends it cleanly within the bound, or at once past it: then it recovers
// from its log at the next start, and no commit is lost.
func (p *process) stop(ctx context.Context, bound time.Duration) error {
	p.signal(syscall.SIGINT)
	polite, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if p.await(polite) == nil {
		return nil
	}
	const grace = 10 * time.Second
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		p.signal(sig)
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		err := p.await(rest)
		cancel()
		if err == nil {
			return nil
		}
	}
	return errors.New("PostgreSQL does not end")
}

// kill ends it and its children as a crash would. Stopped first, so that it
// starts no more of them meanwhile.
func (p *process) kill(ctx context.Context) error {
	p.signal(syscall.SIGSTOP)
	pids, err := children(p.pid)
	p.signal(syscall.SIGKILL)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL) // it may have noticed already
	}
	return errors.Join(err, p.await(ctx))
}
