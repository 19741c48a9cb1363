package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// lateUnique takes longer for the first message of a key than for the others.
type lateUnique struct{ *fakeQueues }

func (l lateUnique) Enqueue(ctx context.Context, queue string, as *engine.RequestID, messages []engine.Message, opts engine.EnqueueOptions, done func(engine.Place, error)) error {
	if string(messages[0].Payload) == "0" {
		time.Sleep(50 * time.Millisecond)
	}
	return l.fakeQueues.Enqueue(ctx, queue, as, messages, opts, done)
}

// TestEnqueue_TheFirstOfAKeyIsStored: the first message of a key is stored, and
// later ones of the connection are duplicates.
func TestEnqueue_TheFirstOfAKeyIsStored(t *testing.T) {
	t.Parallel()
	queues := newFakeQueues(t, "jobs")
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Queues: lateUnique{queues}}})
	c := connect(t, addr)
	for n := range 5 {
		send(t, c.Conn, fmt.Sprintf(`{"type":"enqueue","queue":"jobs","payload":"%d","unique_key":"k","unique_ms":60000,"id":%d}`, n, n))
	}
	c.want(`{"type":"ok","id":0,"position":1}`)
	for n := 1; n < 5; n++ {
		c.want(fmt.Sprintf(`{"type":"ok","id":%d,"position":1,"duplicate":true}`, n))
	}
}
