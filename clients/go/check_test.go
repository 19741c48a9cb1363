package tidewire

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestOptionsThatCannotBe(t *testing.T) {
	c, err := Open("ws://localhost:1/ws", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	handle := func(context.Context, *Job[[]byte]) error { return nil }
	publish := func(o ...PublishOption) error {
		_, err := c.Stream("s").Publish(ctx, nil, o...)
		return err
	}
	enqueue := func(o ...EnqueueOption) error {
		_, err := c.Queue("q").Enqueue(ctx, nil, o...)
		return err
	}
	subscribe := func(o ...SubscribeOption) error {
		_, err := c.Stream("s").Subscribe(ctx, o...)
		return err
	}
	join := func(o ...JoinOption) error {
		_, err := c.Room("r").Join(ctx, o...)
		return err
	}
	work := func(o ...WorkOption) error { return c.Queue("q").Work(ctx, handle, o...) }
	open := func(o Options) error {
		_, err := Open("ws://localhost:1/ws", o)
		return err
	}
	for name, test := range map[string]struct {
		err   error
		field string
	}{
		"timeout of a client":    {open(Options{Timeout: -1}), "Timeout"},
		"pending":                {open(Options{MaxPending: -1}), "MaxPending"},
		"bytes":                  {open(Options{MaxPendingBytes: -1}), "MaxPendingBytes"},
		"frame":                  {open(Options{MaxFrame: -1}), "MaxFrame"},
		"encoding":               {open(Options{Encoding: 7}), "Encoding"},
		"key and token":          {open(Options{APIKey: "k", Token: func(context.Context, bool) (string, error) { return "", nil }}), "APIKey"},
		"timeout of a publish":   {publish(Timeout(-time.Second)), "Timeout"},
		"timeout of an enqueue":  {enqueue(Timeout(-time.Second)), "Timeout"},
		"delay":                  {enqueue(Delay(-time.Second)), "Delay"},
		"priority":               {enqueue(Priority(-1)), "Priority"},
		"unique without a time":  {enqueue(Unique("k", 0)), "Unique"},
		"unique without a key":   {enqueue(Unique("", time.Minute)), "Unique"},
		"credits":                {subscribe(Credits(0)), "Credits"},
		"after and from start":   {subscribe(After(1), FromStart()), "After"},
		"after and at":           {subscribe(After(1), At(time.Now())), "After"},
		"at and from start":      {subscribe(At(time.Now()), FromStart()), "After"},
		"group and at":           {subscribe(Group("g"), At(time.Now())), "Group"},
		"negative position":      {subscribe(After(-1)), "After"},
		"share without a group":  {subscribe(Share()), "Share"},
		"share with a start":     {subscribe(Group("g"), Share(), After(1)), "Share"},
		"concurrency":            {work(Concurrency(0)), "Concurrency"},
		"lease":                  {work(Lease(-1)), "Lease"},
		"drain":                  {work(Drain(-1)), "Drain"},
		"after and history":      {join(After(1), History(1)), "History"},
		"too much history":       {join(History(1001)), "History"},
		"negative history":       {join(History(-1)), "History"},
		"join after":             {join(After(-1)), "After"},
		"position of events":     {last(c.Events("").Query(ctx, Query{}, After(-1))), "After"},
		"position of a follower": {last(c.Events("").Follow(ctx, Query{}, After(-1))), "After"},
		"condition": {func() error {
			_, err := c.Events("").Append(ctx, nil, If(Query{}, -1))
			return err
		}(), "If"},
		"attempts": {func() error {
			_, err := Decide(ctx, c.Events(""), Decision[int]{Attempts: -1})
			return err
		}(), "Attempts"},
	} {
		var e *Error
		if !errors.As(test.err, &e) || e.Code != "invalid" || e.Field != test.field || !strings.Contains(e.Message, "give") {
			t.Errorf("%s: got %v", name, test.err)
		}
	}
	if phase := c.State().Phase; phase != Idle {
		t.Errorf("the client is %s: it has asked the server", phase)
	}
}

// last returns the last error of an iteration.
func last(events func(func(Event, error) bool)) (last error) {
	events(func(_ Event, err error) bool {
		last = err
		return err == nil
	})
	return last
}

func TestAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"ws://a/ws": "ws://a/ws", "wss://a/ws?x=1": "wss://a/ws?x=1", "http://a:8080/ws": "ws://a:8080/ws", "https://a/ws": "wss://a/ws",
		"a/ws": "", "ftp://a/ws": "", "ws:///ws": "", "": "", "localhost:8080/ws": "", "http://": "",
	} {
		got, err := webSocketAddress(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", given, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "address") {
			t.Errorf("%q: %v", given, err)
		}
	}
}

// lines is where a logger writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAHandlerThatFailsIsLogged(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	var log lines
	c := f.open(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	results := map[int64]error{1: errors.New("the printer burns"), 2: RetryAfter(time.Second, "later"), 3: Dead("never"), 4: nil}
	begin(func() (*Worker, error) {
		return QueueOf[string](c, "q").Start(ctx, func(_ context.Context, job *Job[string]) error { return results[job.Position] })
	})
	p := f.accept(t)
	p.answer(p.read("consume"), "ok", nil)
	for i := range 4 {
		p.deliverText(i+1, `\"x\"`)
		kind := "nack"
		if i == 3 {
			kind = "ack"
		}
		p.answer(p.read(kind), "ok", frame{"count": 1})
	}
	p.deliverText(5, "no JSON")
	p.answer(p.read("nack"), "ok", frame{"count": 1})
	text := log.String()
	for _, want := range []string{"the printer burns", "queue=q", "position=1", "position=5", "codec"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the log:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, text)
	}
}
