package scenario

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/bench"
)

// overWire is a strategy by way of a serving node: every writer and every reader
// is a client of its /ws, and none of them talks to PostgreSQL.
func overWire(direct sides) sides {
	direct.describe += "; over a serving node's WebSocket"
	direct.writer = func(ctx context.Context, _ *pgxpool.Pool, load QueueLoad) (writeSide, error) {
		return newWireWriter(ctx, load)
	}
	direct.reader = func(_ context.Context, _ *pgxpool.Pool, load QueueLoad) (readSide, error) {
		return &wireReader{load: load, how: direct.wire}, nil
	}
	return direct
}

// wireWriter has a connection for each writer.
type wireWriter struct {
	load    QueueLoad
	clients []*bench.Wire
}

func newWireWriter(ctx context.Context, load QueueLoad) (*wireWriter, error) {
	w := &wireWriter{load: load}
	for range load.Writers {
		c, err := bench.DialWire(ctx, load.Server)
		if err != nil {
			w.close()
			return nil, fmt.Errorf("connect writer: %w", err)
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

func (w *wireWriter) send(_ context.Context, writer int, payloads [][]byte, done func(error)) error {
	fields := []byte(`"type":"publish","stream":"` + benchStream + `",`)
	if w.load.Mode == "queue" {
		fields = []byte(`"type":"enqueue","queue":"` + benchStream + `",`)
	}
	if len(payloads) == 1 {
		fields = bench.AppendWirePayload(fields, payloads[0])
	} else {
		fields = append(fields, `"messages":[`...)
		for i, p := range payloads {
			if i > 0 {
				fields = append(fields, ',')
			}
			fields = append(bench.AppendWirePayload(append(fields, '{'), p), '}')
		}
		fields = append(fields, ']')
	}
	w.clients[writer].Send(fields, func(m bench.WireMessage, err error) {
		if err == nil {
			err = m.Err()
		}
		done(err)
	})
	return nil
}

func (w *wireWriter) close() { closeAll(w.clients) }

// wireReading is how a reader asks, and says what it has read.
type wireReading struct {
	begin string                               // the request's fields
	ack   func(got []bench.WireMessage) []byte // of the request that records it
	more  func(n int) []byte                   // of a message that asks for more; nil: an ack does
}

// leaseWire consumes a queue.
func leaseWire(l QueueLoad, _ int) wireReading {
	return wireReading{
		begin: fmt.Sprintf(`"type":"consume","queue":%q,"credits":%d`, benchStream, l.ReadBatch),
		ack: func(got []bench.WireMessage) []byte {
			fields := []byte(`"type":"ack","queue":"` + benchStream + `","deliveries":[`)
			for i := range got {
				if i > 0 {
					fields = append(fields, ',')
				}
				fields = append(append(append(fields, '"'), got[i].Delivery...), '"')
			}
			return append(fields, ']')
		},
	}
}

// logWire is a group's subscription.
func logWire(l QueueLoad, number int) wireReading {
	group := fmt.Sprintf("group %d", number+1)
	return wireReading{
		// Twice a batch, so that the next is on its way while one is recorded.
		begin: fmt.Sprintf(`"type":"subscribe","stream":%q,"group":%q,"credits":%d`, benchStream, group, 2*l.ReadBatch),
		ack: func(got []bench.WireMessage) []byte {
			fields := fmt.Appendf(nil, `"type":"commit","stream":%q,"group":%q,"position":`, benchStream, group)
			return strconv.AppendInt(fields, got[len(got)-1].Position, 10)
		},
		more: func(n int) []byte {
			return fmt.Appendf(nil, `"type":"credit","subscription":%q,"n":%d`, benchStream, n)
		},
	}
}

// wireReader opens a connection for each reader.
type wireReader struct {
	load QueueLoad
	how  func(l QueueLoad, number int) wireReading
}

func (r *wireReader) open(ctx context.Context, number int) (source, error) {
	client, err := bench.DialWire(ctx, r.load.Server)
	if err != nil {
		return nil, fmt.Errorf("connect reader: %w", err)
	}
	s := &wireSource{client: client, reading: r.how(r.load, number), most: r.load.ReadBatch}
	if _, err := client.Ask([]byte(s.reading.begin)); err != nil {
		client.Close()
		return nil, err
	}
	return s, nil
}

func (*wireReader) close() {}

// wireSource is one reader.
type wireSource struct {
	client   *bench.Wire
	reading  wireReading
	most     int
	arrived  []bench.WireMessage // and not returned yet
	memory   []bench.WireMessage
	got      []bench.WireMessage
	payloads [][]byte
}

func (s *wireSource) receive(ctx context.Context) ([][]byte, error) {
	if len(s.arrived) == 0 {
		arrived, err := s.client.Next(ctx, s.memory)
		if err != nil {
			return nil, err
		}
		s.arrived, s.memory = arrived, arrived
	}
	s.got = s.arrived[:min(s.most, len(s.arrived))]
	s.arrived = s.arrived[len(s.got):]
	s.payloads = s.payloads[:0]
	for i := range s.got {
		if err := s.got[i].Err(); err != nil {
			return nil, err
		}
		s.payloads = append(s.payloads, s.got[i].Payload)
	}
	return s.payloads, nil
}

func (s *wireSource) ack(context.Context) error {
	if s.reading.more != nil {
		s.client.Tell(s.reading.more(len(s.got)))
	}
	_, err := s.client.Ask(s.reading.ack(s.got))
	return err
}

func (s *wireSource) close() { s.client.Close() }

// closeAll closes the connections at once.
func closeAll(clients []*bench.Wire) {
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(c.Close)
	}
	closing.Wait()
}
