package embedpg

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

// owned holds the postmasters that have to end with this process: those that it
// has started or adopted, except detached ones. It is global, and not part of a
// Server, because a second signal may come before Start has returned a Server.
var owned = struct {
	sync.Mutex
	all   map[*process]bool
	ended bool // EndOwned was called
}{all: make(map[*process]bool)}

// startOwned starts a postmaster that ends with this process.
func startOwned(cmd *exec.Cmd, dir layout) (*process, error) {
	owned.Lock()
	defer owned.Unlock()
	if owned.ended {
		return nil, errors.New("this process is ending")
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, child: true, dir: dir}
	cmd.Process.Release() // process reaps it
	owned.all[p] = true
	return p, nil
}

func own(p *process) {
	owned.Lock()
	defer owned.Unlock()
	owned.all[p] = true
}

func disown(p *process) {
	owned.Lock()
	defer owned.Unlock()
	delete(owned.all, p)
}

// EndOwned ends every PostgreSQL that has to end with this process, by an immediate
// shutdown or, after a second, by SIGKILL. It is for a program that exits without
// Stop. Afterwards no PostgreSQL can be started. Any goroutine may call it, also
// while Start or Stop is running.
func EndOwned() error {
	owned.Lock()
	defer owned.Unlock()
	owned.ended = true
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for p := range owned.all {
		wg.Go(func() {
			if err := p.end(time.Second); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}
