package conformance_test

import (
	"bufio"
	"bytes"
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

// runner is a program with a library, which obeys commands. Scenarios share it: their clients and iterations have other names.
type runner struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	done   chan struct{} // closed when it has ended

	sending sync.Mutex
	next    int // id of the last command

	mu      sync.Mutex
	answers map[int]fields
	events  map[string][]fields // that no step has taken, by what they are of
	all     []line              // in both directions
	changed chan struct{}       // closed and replaced with each line
}

// line is a line, and the id if it is a command or an answer.
type line struct {
	id   int
	text string
}

// startRunner starts the runner of a library, which ends with the test.
func startRunner(t *testing.T, l library) *runner {
	t.Helper()
	cmd, err := l.run()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, cmd: cmd, done: make(chan struct{}), answers: map[int]fields{}, events: map[string][]fields{}, changed: make(chan struct{})}
	cmd.Stderr = &r.errors
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
	for _, e := range append(r.take("", "unhandled"), r.take("process", "unhandled")...) {
		r.t.Errorf("an error that nobody has caught: %v", e)
	}
	if r.t.Failed() {
		r.t.Logf("the runner's errors:\n%s", r.errors.String())
	}
}

// read takes the lines of the runner.
func (r *runner) read(out io.Reader) {
	defer close(r.done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var got fields
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			got = fields{"on": "", "event": "unhandled", "message": "not JSON: " + lines.Text()}
		}
		r.took(got, lines.Text())
	}
	r.cmd.Wait()
}

func (r *runner) took(got fields, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, isAnswer := got["id"].(float64)
	if isAnswer {
		r.answers[int(id)] = got
	} else {
		on, _ := got["on"].(string)
		r.events[on] = append(r.events[on], got)
	}
	r.all = append(r.all, line{int(id), "← " + text})
	close(r.changed)
	r.changed = make(chan struct{})
}

// send sends a command, and returns its id.
func (r *runner) send(command fields) int {
	r.sending.Lock() // without mu: the runner may wait until its lines are read
	defer r.sending.Unlock()
	r.next++
	command = maps.Clone(command)
	command["id"] = r.next
	text, _ := json.Marshal(command)
	r.mu.Lock()
	r.all = append(r.all, line{r.next, "→ " + string(text)})
	r.mu.Unlock()
	r.in.Write(append(text, '\n')) // if it has ended, await says so
	return r.next
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
			if matches(want, e) {
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
	return r.takeSome(on, event, n), err
}

// take takes all events of a kind that have come.
func (r *runner) take(on, event string) []fields {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeSome(on, event, len(r.events[on]))
}

// takeSome takes at most so many events of a kind. The caller holds mu.
func (r *runner) takeSome(on, event string, most int) (got []fields) {
	r.events[on] = slices.DeleteFunc(r.events[on], func(e fields) bool {
		takes := e["event"] == event && len(got) < most
		if takes {
			got = append(got, e)
		}
		return takes
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
		return ok && slices.EqualFunc(want, got, matches)
	}
	return want == got
}
