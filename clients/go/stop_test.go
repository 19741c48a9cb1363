package tidewire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// working returns a worker whose handlers run for the deliveries that the server has sent.
func working(t *testing.T, ctx context.Context, handle Handler[[]byte], deliveries int, options ...WorkOption) (*Client, *Worker, *peer) {
	t.Helper()
	f := newFake(t)
	c := f.open(t, Options{})
	began := make(chan struct{}, deliveries)
	started := begin(func() (*Worker, error) {
		return c.Queue("q").Start(ctx, func(ctx context.Context, job *Job[[]byte]) error {
			began <- struct{}{}
			return handle(ctx, job)
		}, options...)
	})
	p := f.accept(t)
	p.answer(p.read("consume"), "ok", nil)
	r := <-started
	if r.err != nil {
		t.Fatal(r.err)
	}
	for i := range deliveries {
		p.deliver(i + 1)
	}
	for range deliveries {
		<-began
	}
	return c, r.value, p
}

// deliver sends a message of the queue q.
func (p *peer) deliver(position int) { p.deliverText(position, "x") }

func (p *peer) deliverText(position int, payload string) {
	p.send(fmt.Sprintf(`{"type":"delivery","queue":"q","delivery":"d%d","attempt":1,"position":%d,"time":"2026-11-26T08:00:00Z","payload":"%s"}`, position, position, payload))
}

// obey answers everything that the client sends, until the connection ends.
func (p *peer) obey() {
	for {
		var f frame
		if err := p.ws.ReadJSON(&f); err != nil {
			return
		}
		if f["id"] != nil {
			p.answer(f, "ok", frame{"count": 1})
		}
	}
}

// stubborn returns a handler that ignores its context until release is called, which it is at the end of the test.
func stubborn(t *testing.T) (handle Handler[[]byte], release func()) {
	hold, free := context.WithCancel(context.Background())
	t.Cleanup(free)
	return func(context.Context, *Job[[]byte]) error { <-hold.Done(); return nil }, free
}

// stillRunning checks that err says how many handlers run.
func stillRunning(t *testing.T, err error, n int) {
	t.Helper()
	if !errors.Is(err, ErrStillRunning) || !strings.Contains(err.Error(), fmt.Sprintf("%d handlers", n)) {
		t.Errorf("got %v, want an error that %d handlers still run", err, n)
	}
}

func TestStopDoesNotWaitForHandlersThatIgnoreTheirContext(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	handle, release := stubborn(t)
	_, w, p := working(t, ctx, handle, 2, Concurrency(2), Drain(time.Millisecond))
	go p.obey()
	stillRunning(t, w.Stop(ctx), 2)
	select {
	case <-w.Done():
		t.Error("the worker is done, and its handlers are not")
	default:
	}
	release()
	<-w.Done()
	if err := w.Stop(ctx); err != nil {
		t.Errorf("after the handlers have returned: %v", err)
	}
}

func TestWorkDoesNotWaitForHandlersThatIgnoreTheirContext(t *testing.T) {
	t.Parallel()
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	handle, _ := stubborn(t)
	began := make(chan struct{})
	working, stop := context.WithCancel(ctx)
	ended := begin(func() (any, error) {
		return nil, c.Queue("q").Work(working, func(ctx context.Context, job *Job[[]byte]) error {
			close(began)
			return handle(ctx, job)
		}, Drain(time.Millisecond))
	})
	p := f.accept(t)
	p.answer(p.read("consume"), "ok", nil)
	p.deliver(1)
	go p.obey()
	<-began
	stop()
	stillRunning(t, (<-ended).err, 1)
}

func TestAQueueThatIsGoneEndsWorkThoughAHandlerRuns(t *testing.T) {
	t.Parallel()
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	handle, _ := stubborn(t)
	began := make(chan struct{})
	ended := begin(func() (any, error) {
		return nil, c.Queue("q").Work(ctx, func(ctx context.Context, job *Job[[]byte]) error {
			close(began)
			return handle(ctx, job)
		})
	})
	p := f.accept(t)
	p.answer(p.read("consume"), "ok", nil)
	p.deliver(1)
	<-began
	p.send(`{"type":"error","queue":"q","code":"queue_gone","message":"dropped","retryable":false}`)
	if r := <-ended; !errors.Is(r.err, ErrQueueGone) {
		t.Errorf("got %v", r.err)
	}
}
