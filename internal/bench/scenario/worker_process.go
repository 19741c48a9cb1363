package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// workerProcess is a worker process, seen by its parent.
type workerProcess struct {
	role   string
	cmd    *exec.Cmd
	orders *json.Encoder
	stdin  io.Closer
	tail   *tail
	events chan event // closed when the process has ended

	reported bool // it has ended well if its exit code is 0

	mu     sync.Mutex
	last   tick
	recent *bench.Histogram // latencies since takeRecent
}

// startWorker starts a worker process and waits until it is ready.
func startWorker(ctx context.Context, cmd *exec.Cmd, cfg WorkerConfig) (*workerProcess, error) {
	p := &workerProcess{role: cfg.Role, cmd: cmd, tail: &tail{}, events: make(chan event, 1), recent: bench.NewHistogram()}
	cmd.Stderr = p.tail
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Role, err)
	}
	p.stdin, p.orders = stdin, json.NewEncoder(stdin)
	go p.listen(stdout)
	if err := p.orders.Encode(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("tell %s what to do: %w", cfg.Role, err), p.stop())
	}
	if e, err := p.next(ctx, time.Minute); err != nil || !e.Ready {
		return nil, errors.Join(fmt.Errorf("%s did not get ready", cfg.Role), err, p.stop())
	}
	return p, nil
}

// listen keeps the latest tick and passes on the other events of the process.
func (p *workerProcess) listen(out io.Reader) {
	defer close(p.events)
	for lines := json.NewDecoder(out); ; {
		var e event
		if lines.Decode(&e) != nil {
			return
		}
		if e.Tick != nil {
			p.mu.Lock()
			p.last = *e.Tick
			if e.Tick.Recent != nil {
				p.recent.Merge(e.Tick.Recent)
			}
			p.mu.Unlock()
			continue
		}
		p.events <- e
	}
}

// tick returns how far the process is.
func (p *workerProcess) tick() tick {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// takeRecent returns the latencies of about the last second.
func (p *workerProcess) takeRecent() *bench.Histogram {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.recent
	p.recent = bench.NewHistogram()
	return taken
}

func (p *workerProcess) order(o order) error {
	if err := p.orders.Encode(o); err != nil {
		return fmt.Errorf("tell %s to %s: %w\n%s", p.role, o.Do, err, p.tail.last())
	}
	return nil
}

// next returns the next event of the process that is not a tick.
func (p *workerProcess) next(ctx context.Context, patience time.Duration) (event, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case e, ok := <-p.events:
		if !ok {
			return e, fmt.Errorf("%s ended: %s", p.role, p.tail.last())
		}
		if e.Error != "" {
			return e, fmt.Errorf("%s: %s", p.role, e.Error)
		}
		return e, nil
	case <-timer.C:
		return event{}, fmt.Errorf("%s said nothing for %v\n%s", p.role, patience, p.tail.last())
	case <-ctx.Done():
		return event{}, ctx.Err()
	}
}

// failed returns an error that the process has reported, without waiting for one.
func (p *workerProcess) failed() error {
	select {
	case e, ok := <-p.events:
		if !ok || e.Error != "" {
			return fmt.Errorf("%s ended: %s%s", p.role, e.Error, p.tail.last())
		}
	default:
	}
	return nil
}

// finish stops the process and returns its report.
func (p *workerProcess) finish(ctx context.Context, sent []int) (*workerReport, error) {
	if err := p.order(order{Do: "stop", Sent: sent}); err != nil {
		return nil, err
	}
	e, err := p.next(ctx, 2*time.Minute)
	if err != nil {
		return nil, err
	}
	if e.Report == nil {
		return nil, fmt.Errorf("%s made no report", p.role)
	}
	p.reported = true
	return e.Report, nil
}

// stop ends the process by closing its standard input. A process that has reported must end without an error.
func (p *workerProcess) stop() error {
	p.stdin.Close()
	timer := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	for range p.events { // until it has closed its output
	}
	var ended *exec.ExitError
	if err := p.cmd.Wait(); err != nil && (p.reported || !errors.As(err, &ended)) {
		return fmt.Errorf("wait for %s: %w\n%s", p.role, err, p.tail.last())
	}
	return nil
}
