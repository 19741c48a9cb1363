package tidewire_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/clients/go"
)

// real returns a client of the real server, and the name of a new stream and queue.
func real(t *testing.T, o tidewire.Options) (*tidewire.Client, context.Context, string) {
	t.Helper()
	url := os.Getenv("TIDEWIRE_URL")
	if url == "" {
		t.Skip("TIDEWIRE_URL is not set: start `tidewire serve`, and set it to ws://localhost:8080/ws")
	}
	c, err := tidewire.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), time.Now().UnixNano())
	base := "http" + strings.TrimSuffix(strings.TrimPrefix(url, "ws"), "/ws")
	for _, path := range []string{"/v1/streams/" + name, "/v1/queues/jobs-" + name} {
		response, err := http.Post(base+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode >= 300 {
			t.Fatalf("%s: %s", path, response.Status)
		}
	}
	return c, ctx, name
}

// encodings runs a test with each of them.
func encodings(t *testing.T, test func(t *testing.T, o tidewire.Options)) {
	t.Run("json", func(t *testing.T) { test(t, tidewire.Options{Encoding: tidewire.JSON}) })
	t.Run("cbor", func(t *testing.T) { test(t, tidewire.Options{Encoding: tidewire.CBOR}) })
}

func TestAnyBytesGoThroughAStream(t *testing.T) {
	encodings(t, func(t *testing.T, o tidewire.Options) {
		c, ctx, name := real(t, o)
		payloads := []string{"", "text", "\x00\xff\xfe", "é\u2028\"\\\n", strings.Repeat("long", 20000)}
		headers := map[string]any{"text": "é", "number": 7.0, "list": []any{true, nil, "x"}, "big": 1e300}
		for _, p := range payloads {
			if _, err := c.Stream(name).Publish(ctx, []byte(p), tidewire.Key("k"), tidewire.Headers(headers)); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for m, err := range c.Stream(name).Messages(ctx, tidewire.FromStart()) {
			if err != nil {
				t.Fatal(err)
			}
			if string(m.Value) != payloads[n] || m.Key != "k" || m.Time.IsZero() || fmt.Sprint(m.Headers) != fmt.Sprint(headers) {
				t.Errorf("message %d: %q %q %v %v", n, m.Value, m.Key, m.Time, m.Headers)
			}
			if n++; n == len(payloads) {
				break
			}
		}
	})
}

func TestManyMessages(t *testing.T) {
	encodings(t, func(t *testing.T, o tidewire.Options) {
		c, ctx, name := real(t, o)
		s := tidewire.StreamOf[int](c, name)
		const n = 20000
		window := make(chan *tidewire.Pending, 1000)
		go func() {
			defer close(window)
			for i := range n {
				window <- s.PublishAsync(ctx, i)
			}
		}()
		for p := range window {
			if _, err := p.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		next := 0
		for page, err := range s.Pages(ctx, 500, tidewire.FromStart()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Messages {
				if m.Value != next {
					t.Fatalf("message %d is %d", next, m.Value)
				}
				next++
			}
			if next == n {
				break
			}
		}
	})
}

func TestWorkersDoEachJob(t *testing.T) {
	encodings(t, func(t *testing.T, o tidewire.Options) {
		c, ctx, name := real(t, o)
		q := tidewire.QueueOf[int](c, "jobs-"+name)
		const n = 500
		values := make([]int, n)
		for i := range values {
			values[i] = i
		}
		if _, err := q.EnqueueAll(ctx, values); err != nil {
			t.Fatal(err)
		}
		working, stop := context.WithCancel(ctx)
		done := make(chan int, n)
		ended := make(chan error, 1)
		go func() {
			ended <- q.Work(working, func(_ context.Context, job *tidewire.Job[int]) error {
				if job.Value == 7 && job.Attempt == 1 {
					return tidewire.RetryAfter(time.Millisecond, "once more")
				}
				done <- job.Value
				return nil
			}, tidewire.Concurrency(16))
		}()
		seen := map[int]bool{}
		for range n {
			select {
			case i := <-done:
				seen[i] = true
			case <-ctx.Done():
				t.Fatal("a job is missing")
			}
		}
		stop()
		if err := <-ended; err != nil || len(seen) != n {
			t.Errorf("%d jobs, %v", len(seen), err)
		}
	})
}

func TestAQueueThatDoesNotExist(t *testing.T) {
	c, ctx, name := real(t, tidewire.Options{})
	err := c.Queue("none-"+name).Work(ctx, func(context.Context, *tidewire.Job[[]byte]) error { return nil })
	if !errors.Is(err, tidewire.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestEventsOfTheRealServer(t *testing.T) {
	encodings(t, func(t *testing.T, o tidewire.Options) {
		c, ctx, tag := real(t, o)
		store := c.Events("")
		a, err := store.Append(ctx, []tidewire.Event{{Type: "A", Tags: []string{tag}, Data: []byte(`{"n":1}`)}, {Type: "B", Tags: []string{tag}, Bytes: []byte{0, 255}}})
		if err != nil || len(a.Positions) != 2 {
			t.Fatal(a, err)
		}
		n := 0
		for e, err := range store.Follow(ctx, tidewire.Tagged(tag)) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Position != a.Positions[n] || n == 0 && string(e.Data) != `{"n":1}` || n == 1 && string(e.Bytes) != "\x00\xff" {
				t.Errorf("got %+v", e)
			}
			if n++; n == 2 {
				break
			}
		}
		var conflict *tidewire.ConflictError
		_, err = store.Append(ctx, []tidewire.Event{{Type: "C", Tags: []string{tag}}}, tidewire.If(tidewire.Tagged(tag), a.Positions[0]))
		if !errors.As(err, &conflict) || conflict.Position != a.Positions[1] || conflict.EventType != "B" {
			t.Errorf("got %v", err)
		}
	})
}

// TestTheRoomOfTheREADME has two clients talk, as README.md does.
func TestTheRoomOfTheREADME(t *testing.T) {
	c, ctx, name := real(t, tidewire.Options{})
	another, _, _ := real(t, tidewire.Options{})
	ann, err := c.Room(name).Join(ctx, tidewire.User("ann"), tidewire.WithPresence())
	if err != nil {
		t.Fatal(err)
	}
	bob, err := another.Room(name).Join(ctx, tidewire.User("bob"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bob.Chat(ctx, "hello"); err != nil {
		t.Fatal(err)
	}
	said, members := "", ""
	for e, err := range ann.Events(ctx) {
		if err != nil {
			t.Fatalf("%v, after %q of %s", err, said, members)
		}
		switch e := e.(type) {
		case *tidewire.Chat:
			said = e.User + " " + e.Text
		case *tidewire.Presence:
			members = fmt.Sprint(e.Members)
		}
		if said == "bob hello" && members == "[ann bob]" {
			break
		}
	}
}
