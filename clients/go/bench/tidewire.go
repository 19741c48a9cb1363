package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/tidewire/tidewire/clients/go"
)

// tidewireTarget measures the Go client of Tidewire.
type tidewireTarget struct {
	o   options
	c   *tidewire.Client
	s   *tidewire.Stream[[]byte]
	q   *tidewire.Queue[[]byte]
	all []*tidewire.Subscription[[]byte] // of memory
}

func (t *tidewireTarget) prepare(_ context.Context, o options) (err error) {
	t.o = o
	base := "http" + strings.TrimSuffix(strings.TrimPrefix(o.url, "ws"), "/ws")
	for _, path := range []string{"/v1/streams/" + o.name, "/v1/queues/jobs-" + o.name} {
		response, err := http.Post(base+path, "", nil)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode >= 300 {
			return fmt.Errorf("POST %s: %s", path, response.Status)
		}
	}
	if t.c, err = tidewire.Open(o.url, tidewire.Options{}); err != nil {
		return err
	}
	t.s, t.q = t.c.Stream(o.name), t.c.Queue("jobs-"+o.name)
	return nil
}

func (t *tidewireTarget) publish(ctx context.Context, payload []byte) error {
	_, err := t.s.Publish(ctx, payload)
	return err
}

// chunks calls f for count messages, some at a time.
func chunks(count int, payload []byte, f func([][]byte) error) error {
	most := max(1, min(500, 512<<10/max(1, len(payload))))
	for count > 0 {
		some := make([][]byte, min(most, count))
		for i := range some {
			some[i] = payload
		}
		if err := f(some); err != nil {
			return err
		}
		count -= len(some)
	}
	return nil
}

func (t *tidewireTarget) fill(ctx context.Context, count int, payload []byte) error {
	return chunks(count, payload, func(some [][]byte) error {
		_, err := t.s.PublishAll(ctx, some)
		return err
	})
}

func (t *tidewireTarget) subscribe(ctx context.Context, count int) error {
	for page, err := range t.s.Pages(ctx, 1000, tidewire.FromStart(), tidewire.Credits(4096)) {
		if err != nil {
			return err
		}
		if count -= len(page.Messages); count <= 0 {
			return nil
		}
	}
	return errors.New("the subscription has ended")
}

func (t *tidewireTarget) enqueue(ctx context.Context, count int, payload []byte) error {
	return chunks(count, payload, func(some [][]byte) error {
		_, err := t.q.EnqueueAll(ctx, some)
		return err
	})
}

func (t *tidewireTarget) work(ctx context.Context, count, concurrency int) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	return t.q.Work(working, func(context.Context, *tidewire.Job[[]byte]) error {
		if done.Add(1) == int64(count) {
			stop()
		}
		return nil
	}, tidewire.Concurrency(concurrency))
}

func (t *tidewireTarget) client(ctx context.Context) error {
	c, err := tidewire.Open(t.o.url, tidewire.Options{})
	if err != nil {
		return err
	}
	sub, err := c.Stream(t.o.name).Subscribe(ctx)
	t.all = append(t.all, sub)
	return err
}
