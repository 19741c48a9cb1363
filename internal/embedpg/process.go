package embedpg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// process is a postmaster, started or adopted. No goroutine waits for its end, because
// it could not end while a detached postmaster runs. Instead, alive reaps it.
type process struct {
	pid   int
	child bool
	dir   layout

	mu   sync.Mutex // guards gone, and makes sure that a reaped pid is not signalled
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

// ErrNotClean means that PostgreSQL had to be ended immediately. Nothing committed is
// lost; its next start recovers from the log.
var ErrNotClean = errors.New("PostgreSQL did not stop in time and was ended at once")

const (
	// atOnce bounds an immediate shutdown, for which PostgreSQL itself needs at most
	// five seconds; after it, everything is killed.
	atOnce = 6 * time.Second
	// afterKill bounds the wait for killed processes.
	afterKill = 5 * time.Second
)

// stop ends the postmaster and all its children: by a fast shutdown within bound, else
// by an immediate one, else by SIGKILL. A deadline of ctx bounds all of it: the first
// two steps then leave time for the next. The error is ErrNotClean unless the fast
// shutdown was enough.
func (p *process) stop(ctx context.Context, bound time.Duration) error {
	p.signal(syscall.SIGINT)
	grace := atOnce
	if deadline, ok := ctx.Deadline(); ok {
		left := max(0, time.Until(deadline))
		grace = min(grace, left/3)
		bound = min(bound, left-grace)
	}
	polite, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if p.await(polite) == nil {
		return nil
	}
	if err := p.end(grace); err != nil {
		return err
	}
	return ErrNotClean
}

// end does an immediate shutdown. After grace it kills the remaining processes with
// SIGKILL, the only signal that ends a frozen process.
func (p *process) end(grace time.Duration) error {
	p.signal(syscall.SIGQUIT)
	rest, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if p.await(rest) == nil {
		return nil
	}
	rest, cancel = context.WithTimeout(context.Background(), afterKill)
	defer cancel()
	if err := p.kill(rest); err != nil {
		return fmt.Errorf("PostgreSQL, process %d, does not end: %w", p.pid, err)
	}
	return nil
}

// kill ends the postmaster and its children as a crash would. It first stops the
// postmaster with SIGSTOP, so that it starts no more children. The postmaster ends last,
// so that also another goroutine that waits for it knows that the children are killed.
func (p *process) kill(ctx context.Context) error {
	p.signal(syscall.SIGSTOP)
	pids, err := children(p.pid)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	p.signal(syscall.SIGKILL)
	return errors.Join(err, p.await(ctx))
}

// freeze suspends the postmaster and its children with SIGSTOP.
func (p *process) freeze() error {
	p.signal(syscall.SIGSTOP) // first, so that it starts no more children meanwhile
	return p.signalChildren(syscall.SIGSTOP)
}

// thaw resumes them with SIGCONT.
func (p *process) thaw() error {
	err := p.signalChildren(syscall.SIGCONT)
	p.signal(syscall.SIGCONT)
	return err
}

func (p *process) signalChildren(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	pids, err := children(p.pid)
	for _, pid := range pids {
		syscall.Kill(pid, sig) // it may have ended
	}
	return err
}
