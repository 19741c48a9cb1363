// Command conformance obeys the commands of the suite in clients/conformance with the Go client, and reports what that says.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tidewire/tidewire/clients/go"
)

// fields are the fields of a line.
type fields = map[string]any

// command is one line of the suite.
type command struct {
	ID       int    `json:"id"`
	Do       string `json:"do"`
	Client   string `json:"client"`
	As       string `json:"as"`
	On       string `json:"on"`
	URL      string `json:"url"`
	Token    any    `json:"token"`
	Batch    *bool  `json:"batch"`
	Timeout  int    `json:"timeout_ms"`
	Cancel   int    `json:"cancel_ms"`
	Pending  int    `json:"max_pending"`
	Bytes    int    `json:"max_pending_bytes"`
	Encoding string `json:"encoding"`

	Stream     string            `json:"stream"`
	Queue      string            `json:"queue"`
	Room       string            `json:"room"`
	Store      string            `json:"store"`
	Value      json.RawMessage   `json:"value"`
	Values     []json.RawMessage `json:"values"`
	Key        string            `json:"key"`
	Headers    map[string]any    `json:"headers"`
	Delay      int               `json:"delay_ms"`
	Priority   int               `json:"priority"`
	UniqueKey  string            `json:"unique_key"`
	UniqueMS   int               `json:"unique_ms"`
	Events     []event           `json:"events"`
	Event      event             `json:"event"`
	Condition  *condition        `json:"condition"`
	Query      tidewire.Query    `json:"query"`
	Queries    []tidewire.Query  `json:"queries"`
	Max        int               `json:"max"`
	Attempts   int               `json:"attempts"`
	After      *int64            `json:"after"`
	At         string            `json:"at"`
	From       string            `json:"from"`
	Group      string            `json:"group"`
	Share      bool              `json:"share"`
	Keys       []string          `json:"keys"`
	Credits    int               `json:"credits"`
	OnGap      string            `json:"on_gap"`
	Pages      int               `json:"pages"`
	Pause      int               `json:"pause_ms"`
	Codec      string            `json:"codec"`
	OnInvalid  string            `json:"on_invalid"`
	Position   int64             `json:"position"`
	Partition  int               `json:"partition"`
	Handle     any               `json:"handle"`
	Concurrent int               `json:"concurrency"`
	RetryMS    int               `json:"retry_ms"`
	WorkMS     int               `json:"work_ms"`
	LeaseMS    int               `json:"lease_ms"`
	DrainMS    *int              `json:"drain_ms"`
	History    int               `json:"history"`
	Presence   bool              `json:"presence"`
	User       string            `json:"user"`
	Text       string            `json:"text"`
}

// event is an event of a command.
type event struct {
	Type string          `json:"type"`
	Tags []string        `json:"tags"`
	Data json.RawMessage `json:"data"`
	ID   string          `json:"id"`
}

func (e event) event() tidewire.Event {
	return tidewire.Event{Type: e.Type, Tags: e.Tags, Data: e.Data, ID: e.ID}
}

type condition struct {
	Query tidewire.Query `json:"query"`
	After int64          `json:"after"`
}

// runner holds what the commands have begun.
type runner struct {
	mu      sync.Mutex
	clients map[string]*tidewire.Client
	subs    map[string]*iteration
	workers map[string]*worker
	members map[string]*tidewire.Membership

	out sync.Mutex
}

func main() {
	r := &runner{
		clients: map[string]*tidewire.Client{}, subs: map[string]*iteration{}, workers: map[string]*worker{}, members: map[string]*tidewire.Membership{},
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			r.print(fields{"on": "", "event": "unhandled", "message": err.Error()})
			continue
		}
		if c.Do == "exit" {
			return
		}
		r.obey(&c)
	}
}

// obey begins a command. Publishes go to the library in the order of their lines; the others wait for nothing.
func (r *runner) obey(c *command) {
	switch c.Do {
	case "open":
		r.answer(c, fields{}, r.open(c))
	case "publish":
		if c.Cancel == 0 {
			r.publish(c)
			return
		}
		go func() { r.answer2(c, r.publishUntil) }()
	case "enqueue":
		r.enqueue(c)
	case "pause", "resume":
		r.sub(c.On).gate.set(c.Do == "pause")
		r.answer(c, fields{}, nil)
	case "release":
		r.worker(c.On).release()
		r.answer(c, fields{}, nil)
	default:
		do, ok := map[string]func(*command) (fields, error){
			"close": r.close, "append": r.append, "query": r.query, "project": r.project, "decide": r.decide,
			"subscribe": r.subscribe, "follow": r.follow, "commit": r.commit, "unsubscribe": r.unsubscribe, "work": r.work, "stop": r.stop,
			"join": r.join, "chat": r.chat, "members": r.membersOf, "leave": r.leave,
		}[c.Do]
		if !ok {
			r.answer(c, nil, fmt.Errorf("there is no command %q", c.Do))
			return
		}
		go r.answer2(c, do)
	}
}

func (r *runner) answer2(c *command, do func(*command) (fields, error)) {
	ok, err := do(c)
	r.answer(c, ok, err)
}

// print writes one line.
func (r *runner) print(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		text, _ = json.Marshal(fields{"on": "", "event": "unhandled", "message": err.Error()})
	}
	r.out.Lock()
	defer r.out.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func (r *runner) answer(c *command, ok fields, err error) {
	if err != nil {
		r.print(fields{"id": c.ID, "error": describe(err)})
		return
	}
	r.print(fields{"id": c.ID, "ok": ok})
}

// event reports what the library says of something.
func (r *runner) event(on, name string, more fields) {
	line := fields{"on": on, "event": name}
	for k, v := range more {
		line[k] = v
	}
	r.print(line)
}

// describe returns the fields of an error; nil if there is none.
func describe(err error) any {
	if err == nil {
		return nil
	}
	var e *tidewire.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) {
			return fields{"code": "cancelled", "retryable": false, "message": err.Error()}
		}
		return fields{"code": "application", "retryable": false, "message": err.Error()}
	}
	d := fields{"code": e.Code, "retryable": e.Retryable, "message": err.Error()}
	var conflict *tidewire.ConflictError
	var old *tidewire.TooOldError
	var large *tidewire.MessageTooLargeError
	var lost *tidewire.HistoryLostError
	var lease *tidewire.LeaseLostError
	switch {
	case errors.As(err, &conflict):
		d["position"], d["event_type"] = conflict.Position, conflict.EventType
	case errors.As(err, &old):
		d["oldest"], d["partition"] = old.Oldest, old.Partition
	case errors.As(err, &large):
		d["position"], d["size"], d["partition"] = large.Position, large.Size, large.Partition
	case errors.As(err, &lost):
		d["last"] = lost.Last
	case errors.As(err, &lease):
		d["lost"] = lease.Lost
	}
	return d
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (r *runner) client(name string) *tidewire.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients[name]
}

func (r *runner) sub(name string) *iteration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.subs[name]
}

func (r *runner) worker(name string) *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers[name]
}

func (r *runner) member(name string) *tidewire.Membership {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[name]
}
