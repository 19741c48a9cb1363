package multinode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/fault"
)

// life identifies a process of a node.
type life struct {
	node   int
	number int // from 1
}

// node is a node of the cluster, which may be killed and started again.
type node struct {
	index   int
	program string
	args    []string
	command func(name string, args ...string) *exec.Cmd
	proxy   *fault.Proxy // to PostgreSQL; nil without a network of its own
	log     *os.File

	mu      sync.Mutex // guards the fields below
	proc    *fault.Proc
	life    life
	address string // HOST:PORT; empty while the node does not run
	down    bool   // it is dead on purpose
}

// startPatience is the maximum time for the start of a node.
const startPatience = time.Minute

// start starts a process of the node, and waits until it listens.
func (n *node) start(ctx context.Context) error {
	out := &output{log: n.log, listening: make(chan string, 1)}
	cmd := n.command(n.program, append([]string{"serve"}, n.args...)...)
	cmd.Stdout, cmd.Stderr = out, n.log
	proc, err := fault.Start(cmd)
	if err != nil {
		return fmt.Errorf("start node %d: %w", n.index+1, err)
	}
	n.mu.Lock()
	n.proc = proc
	n.life = life{n.index, n.life.number + 1}
	n.mu.Unlock()
	select {
	case address := <-out.listening:
		n.mu.Lock()
		defer n.mu.Unlock()
		n.address, n.down = address, false
		return nil
	case <-proc.Done():
		return fmt.Errorf("node %d ended before it was ready: %w: see %s", n.index+1, errors.Join(proc.Err(), errEnded), n.log.Name())
	case <-time.After(startPatience):
		return fmt.Errorf("node %d is not ready within %v: see %s", n.index+1, startPatience, n.log.Name())
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errEnded = errors.New("it has ended")

// kill kills the node's process. No client that asks for the node's address afterwards gets one.
func (n *node) kill() {
	n.mu.Lock()
	n.address, n.down = "", true
	proc := n.proc
	n.mu.Unlock()
	proc.Kill()
}

// stop stops the node, unless it is dead.
func (n *node) stop(ctx context.Context) error {
	n.mu.Lock()
	proc, down := n.proc, n.down
	n.address, n.down = "", true
	n.mu.Unlock()
	if proc == nil || down {
		return nil
	}
	proc.Continue() // fails only if it has ended
	if err := proc.Terminate(ctx); err != nil {
		proc.Kill()
		return fmt.Errorf("node %d: %w: see %s", n.index+1, err, n.log.Name())
	}
	return nil
}

// alive fails if the node has ended and was not killed by this package.
func (n *node) alive() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.proc.Done():
		if !n.down {
			return fmt.Errorf("node %d: %w: see %s", n.index+1, errors.Join(n.proc.Err(), errEnded), n.log.Name())
		}
	default:
	}
	return nil
}

// current returns the node's process and its address, or an empty address.
func (n *node) current() (life, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life, n.address
}

// process returns the node's process.
func (n *node) process() *fault.Proc {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// output writes to the log, and looks for the line that says where the node listens.
type output struct {
	log       *os.File
	line      []byte
	listening chan string
	found     bool
}

func (o *output) Write(p []byte) (int, error) {
	for rest := p; !o.found && len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		o.line, rest = append(o.line, part...), after
		if !whole {
			break
		}
		if address, ok := strings.CutPrefix(string(o.line), "listening on "); ok {
			o.found = true
			o.listening <- address
		}
		o.line = o.line[:0]
	}
	return o.log.Write(p)
}
