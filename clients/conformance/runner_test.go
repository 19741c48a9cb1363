package conformance_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fields are the fields of a line.
type fields = map[string]any

// runner is a program with a library, which obeys commands.
type runner struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors *lockedBuffer
	done   chan struct{} // closed when it has ended

	mu      sync.Mutex
	next    int
	answers map[int]fields
	events  map[string][]fields // that no step has taken, by what they are of
	all     []string            // every line, in both directions
	changed chan struct{}       // closed and replaced with each line
}

// startRunner starts the runner of a library, which ends with the test.
func startRunner(t *testing.T, l library) *runner {
	t.Helper()
	cmd, err := l.run()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, cmd: cmd, errors: new(lockedBuffer), done: make(chan struct{}), answers: map[int]fields{}, events: map[string][]fields{}, changed: make(chan struct{})}
	cmd.Stderr = r.errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go r.read(out)
	t.Cleanup(r.end)
	return r
}

// end ends the process. It has to end by itself.
func (r *runner) end() {
	r.cmd.Process.Signal(syscall.SIGCONT)
	io.WriteString(r.in, `{"id":0,"do":"exit"}`+"\n")
	r.in.Close()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Error("the runner does not end")
		r.cmd.Process.Kill()
		<-r.done
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Errorf("the runner ended with %d", code)
	}
	for _, e := range r.take("", "unhandled") {
		r.t.Errorf("an error that nobody has caught: %v", e)
	}
	if r.t.Failed() {
		r.mu.Lock()
		defer r.mu.Unlock()
		lines := r.all
		if len(lines) > 200 {
			lines = append(append(lines[:100:100], "…"), lines[len(lines)-100:]...)
		}
		for _, line := range lines {
			r.t.Log(line)
		}
		r.t.Logf("the runner's errors:\n%s", r.errors.String())
	}
}

// read takes the lines of the runner.
func (r *runner) read(out io.Reader) {
	defer close(r.done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line fields
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			line = fields{"on": "", "event": "unhandled", "message": "not JSON: " + lines.Text()}
		}
		r.took(line, lines.Text())
	}
	r.cmd.Wait()
	r.took(nil, "the runner has ended")
}

func (r *runner) took(line fields, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, "← "+text)
	if id, ok := line["id"].(float64); ok {
		r.answers[int(id)] = line
	} else if line != nil {
		on, _ := line["on"].(string)
		r.events[on] = append(r.events[on], line)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// send sends a command, and returns its id.
func (r *runner) send(command fields) int {
	r.mu.Lock()
	r.next++
	id := r.next
	command = maps.Clone(command)
	command["id"] = id
	text, _ := json.Marshal(command)
	r.all = append(r.all, "→ "+string(text))
	r.mu.Unlock()
	r.in.Write(append(text, '\n')) // if it has ended, await says so
	return id
}

// await waits until look has found something in what the runner has said. The caller of look holds mu.
func (r *runner) await(what string, look func() bool) error {
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		found, changed := look(), r.changed
		r.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-changed:
			time.Sleep(time.Millisecond) // for the next lines: each look takes its time
		case <-r.done:
			r.mu.Lock()
			defer r.mu.Unlock()
			if look() {
				return nil
			}
			return fmt.Errorf("%s did not come: the runner has ended", what)
		case <-deadline:
			return fmt.Errorf("%s did not come", what)
		}
	}
}

// answer waits for the answer to a command.
func (r *runner) answer(id int) (got fields, err error) {
	err = r.await(fmt.Sprintf("the answer to %d", id), func() (ok bool) {
		got, ok = r.answers[id]
		delete(r.answers, id)
		return ok
	})
	return got, err
}

// see waits for an event, and takes it; in order also those of its kind before it.
func (r *runner) see(want fields, inOrder bool) error {
	on, _ := want["on"].(string)
	return r.await(fmt.Sprintf("the event %v", want), func() bool {
		for i, e := range r.events[on] {
			if e["event"] == want["event"] && matches(want, e) {
				before := slices.DeleteFunc(slices.Clone(r.events[on][:i]), func(e fields) bool { return inOrder && e["event"] == want["event"] })
				r.events[on] = append(before, r.events[on][i+1:]...)
				return true
			}
		}
		return false
	})
}

// count waits for n events of a kind, and takes them. Each 1,000 of them may take as long as one event.
func (r *runner) count(on, event string, n int) (got []fields, err error) {
	looked, found := 0, 0 // nobody else takes events: each is looked at once
	for want := 0; want < n && err == nil; {
		want = min(want+1000, n)
		err = r.await(fmt.Sprintf("%d events %q of %q", n, event, on), func() bool {
			for ; looked < len(r.events[on]); looked++ {
				if r.events[on][looked]["event"] == event {
					found++
				}
			}
			return found >= want
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[on] = slices.DeleteFunc(r.events[on], func(e fields) bool {
		takes := e["event"] == event && len(got) < n
		if takes {
			got = append(got, e)
		}
		return takes
	})
	return got, err
}

// take takes all events of a kind that have come.
func (r *runner) take(on, event string) (got []fields) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[on] = slices.DeleteFunc(r.events[on], func(e fields) bool {
		if e["event"] == event {
			got = append(got, e)
		}
		return e["event"] == event
	})
	return got
}

// matches reports whether got has everything that want has.
func matches(want, got any) bool {
	switch want := want.(type) {
	case fields:
		got, ok := got.(fields)
		if !ok {
			return false
		}
		for name, value := range want {
			if !matches(value, got[name]) {
				return false
			}
		}
		return true
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return false
		}
		for i := range want {
			if !matches(want[i], got[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}
