package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// IdleConnections is a number of open connections that do nothing.
type IdleConnections struct {
	// Connect is how long each took to open, handshake included.
	Connect *Histogram

	mu      sync.Mutex
	sockets []rawSocket
}

// holdDialers is the number of connections that are opened at the same time.
const holdDialers = 16

// Hold opens n connections. config is for wss URLs. If it fails, it closes those that were opened.
func Hold(ctx context.Context, url string, config *tls.Config, n int) (*IdleConnections, error) {
	h := &IdleConnections{Connect: NewHistogram()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan struct{})
	var dialers sync.WaitGroup
	for range holdDialers {
		dialers.Go(func() {
			for range next {
				if err := h.dial(ctx, url, config); err != nil {
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
	if len(h.sockets) < n {
		opened := len(h.sockets)
		h.Close()
		return nil, fmt.Errorf("connection %d of %d: %w", opened+1, n, context.Cause(ctx))
	}
	return h, nil
}

func (h *IdleConnections) dial(ctx context.Context, url string, config *tls.Config) error {
	start := time.Now()
	socket, _, err := dialRaw(ctx, url, config)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Connect.Record(time.Since(start))
	h.sockets = append(h.sockets, socket)
	return nil
}

// Close closes the connections without a closing handshake.
func (h *IdleConnections) Close() {
	for _, s := range h.sockets {
		s.close()
	}
	h.sockets = nil
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
