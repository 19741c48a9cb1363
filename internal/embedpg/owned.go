package embedpg

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

// owned are the postmasters that are to end with this process: all that it
// started or adopted, less those that outlive it. It is the process's, not a
// Server's, because a second signal may come while Start has not returned one.
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

// EndOwned ends every PostgreSQL that is to end with this process, by an
// immediate shutdown or, within two seconds, by SIGKILL. It is for a program
// that exits without Stop, and none is started after it. Any goroutine may call it,
// also while Start or Stop is under way.
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
