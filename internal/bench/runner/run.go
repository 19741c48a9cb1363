package runner

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/live"
)

const (
	mostLines  = 200 // of a run
	mostPoints = 300
	longest    = 400      // characters of a line
	largest    = 64 << 10 // bytes of a line that is read
)

// exitInvalid is the exit code of a run whose result is invalid. It has a result like another.
const exitInvalid = 3

// run is one child process.
type run struct {
	name   string // of its result, or of what its results begin with
	grace  time.Duration
	folder *folder
	ended  chan struct{} // closed when the processes have ended

	mu      sync.Mutex // guards the fields below
	now     gateway.BenchRun
	stopped bool
	input   io.Closer // closing it tells the child to stop
	kill    *time.Timer
	process *os.Process
}

func newRun(scenario, name string, now time.Time, grace time.Duration, in *folder) *run {
	return &run{name: name, grace: grace, folder: in, ended: make(chan struct{}), now: gateway.BenchRun{
		Scenario: scenario, State: gateway.BenchRunning, Started: now, Lines: []string{}, Points: []gateway.BenchPoint{}, Results: []string{},
	}}
}

// start starts the child, in a process group of its own: a Ctrl-C for the server is not for it.
func (r *run) start(program string, args, env []string) error {
	command := exec.Command(program, args...)
	command.Env = env
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := command.StdinPipe()
	if err != nil {
		return fmt.Errorf("start a benchmark: %w", err)
	}
	output, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start a benchmark: %w", err)
	}
	command.Stdout, command.Stderr = writer, writer
	err = command.Start()
	writer.Close()
	if err != nil {
		output.Close()
		return fmt.Errorf("start a benchmark: %w", err)
	}
	r.input, r.process = input, command.Process
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.read(output)
	}()
	go func() {
		err := command.Wait()
		select { // processes of the child may still hold its output
		case <-read:
		case <-time.After(time.Second):
		}
		output.Close()
		r.end(err)
	}()
	return nil
}

// read takes the output, line by line.
func (r *run) read(output io.Reader) {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, largest)
	for lines.Scan() {
		r.take(lines.Bytes())
	}
	io.Copy(io.Discard, output) // after a line that is too long: the child must not wait
}

// take takes one line: an Event, or text.
func (r *run) take(line []byte) {
	var event live.Event
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &event) != nil {
		event = live.Event{Line: string(line)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case event.Tick != nil:
		r.now.Points = last(append(r.now.Points, pointOf(*event.Tick, time.Now().UTC())), mostPoints)
	case event.Step != nil:
		step := gateway.BenchStep(*event.Step)
		r.now.Step = &step
	case strings.TrimSpace(event.Line) != "":
		r.now.Lines = last(append(r.now.Lines, cut(event.Line)), mostLines)
	}
}

// cut shortens a line, and replaces what is no UTF-8.
func cut(line string) string {
	all := []rune(strings.ToValidUTF8(strings.TrimRight(line, " \r"), "�"))
	if len(all) > longest {
		all = append(all[:longest], '…')
	}
	return string(all)
}

// last returns the last n of them.
func last[T any](all []T, n int) []T { return all[max(len(all)-n, 0):] }

func pointOf(t bench.Tick, now time.Time) gateway.BenchPoint {
	p := gateway.BenchPoint{Time: now, Row: t.Row, Phase: t.Phase, Rate: max(t.Metrics["messages_per_second"], t.Metrics["deliveries_per_second"], t.Metrics["connections_per_second"])}
	for _, name := range []string{"server_cpu_cores", "postgres_cpu_cores", "generator_cpu_cores"} {
		p.Cores += t.Metrics[name]
	}
	if v, ok := t.Metrics["latency_p50_ms"]; ok {
		p.P50 = &v
	}
	if v, ok := t.Metrics["latency_p99_ms"]; ok {
		p.P99 = &v
	}
	return p
}

// stop tells the child to stop, and ends it if it does not.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.now.State != gateway.BenchRunning {
		return
	}
	r.stopped = true
	r.input.Close()
	r.kill = time.AfterFunc(r.grace, func() { syscall.Kill(-r.process.Pid, syscall.SIGKILL) })
}

// end takes note that the child has ended.
func (r *run) end(err error) {
	results, _ := r.folder.list() // of a folder that cannot be read, the screen says so
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kill != nil {
		r.kill.Stop()
	}
	r.input.Close()
	r.now.Ended, r.now.Step = time.Now().UTC(), nil
	for _, one := range results {
		if one.Result == r.name || strings.HasPrefix(one.Result, r.name+"-") {
			r.now.Results = append(r.now.Results, one.Result)
		}
	}
	slices.Sort(r.now.Results)
	var code *exec.ExitError
	switch invalid := errors.As(err, &code) && code.ExitCode() == exitInvalid; {
	case r.stopped:
		r.now.State = gateway.BenchStopped
	case err == nil || invalid && len(r.now.Results) > 0:
		r.now.State = gateway.BenchDone
	default:
		r.now.State = gateway.BenchFailed
	}
	close(r.ended)
}

func (r *run) running() bool {
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// look returns a copy.
func (r *run) look() gateway.BenchRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now
	now.Lines, now.Points, now.Results = slices.Clone(now.Lines), slices.Clone(now.Points), slices.Clone(now.Results)
	return now
}
