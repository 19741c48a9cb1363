package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"
)

// IdleConnections is a number of open connections that do nothing.
type IdleConnections struct {
	// Connect is how long each took to open, handshake included.
	Connect *Histogram

	mu  sync.Mutex
	fds []int
}

// holdDialers is the number of connections that are opened at the same time.
const holdDialers = 16

// Hold opens n connections. If it fails, it closes those that were opened.
func Hold(ctx context.Context, url string, n int) (*IdleConnections, error) {
	h := &IdleConnections{Connect: NewHistogram()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan struct{})
	var dialers sync.WaitGroup
	for range holdDialers {
		dialers.Go(func() {
			for range next {
				if err := h.dial(ctx, url); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for range n {
		select {
		case next <- struct{}{}:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	dialers.Wait()
	if len(h.fds) < n {
		opened := len(h.fds)
		h.Close()
		return nil, fmt.Errorf("connection %d of %d: %w", opened+1, n, context.Cause(ctx))
	}
	return h, nil
}

func (h *IdleConnections) dial(ctx context.Context, url string) error {
	start := time.Now()
	fd, _, err := dialRaw(ctx, url)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Connect.Record(time.Since(start))
	h.fds = append(h.fds, fd)
	return nil
}

// Close closes the connections without a closing handshake.
func (h *IdleConnections) Close() {
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	h.fds = nil
}

// ResidentMemory returns the resident memory of a process, in bytes.
func ResidentMemory(pid int) (uint64, error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, err
	}
	m, err := p.MemoryInfo()
	if err != nil {
		return 0, err
	}
	return m.RSS, nil
}
