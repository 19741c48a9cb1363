package failover

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/websocket"
)

// ingester sends messages to /ws/ingest in bursts, which the server writes with COPY. The server acknowledges
// the number of committed messages of the connection.
type ingester struct {
	client
	accounts *accounts
}

// burst is the number of messages in a burst.
const burst = 100

// accounts has the sent and acknowledged messages of each connection. Safe for concurrent use.
type accounts struct {
	mu  sync.Mutex // guards all
	all []*account // messages carry the index of their connection, and their number on it
}

type account struct {
	sent, acked int
}

func (a *accounts) open() (number int, of *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of = &account{}
	a.all = append(a.all, of)
	return len(a.all) - 1, of
}

func (i *ingester) run(ctx context.Context) {
	for i.rest(ctx, 1) {
		conn, err := websocket.Dial(ctx, "ws://"+i.node()+"/ws/ingest?ack=1", websocket.Config{})
		if err == nil {
			err = i.ingest(ctx, conn)
		}
		if err != nil {
			i.ledger.Count(countErrors)
			sleep(ctx, 50*time.Millisecond)
		}
	}
}

// ingest sends until the load ends or the connection breaks. A completed closing handshake means that all messages
// are stored.
func (i *ingester) ingest(ctx context.Context, conn *websocket.Conn) error {
	number, of := i.accounts.open()
	ended := make(chan error, 1)
	go func() { ended <- i.readAcks(conn, of) }()
	for i.rest(ctx, burst/10) {
		i.accounts.mu.Lock()
		from := of.sent
		of.sent += burst
		i.accounts.mu.Unlock()
		var err error
		for n := range burst {
			err = errors.Join(err, conn.Queue(websocket.OpBinary, []byte(contentOf(number, from+n).String())))
		}
		if err = errors.Join(err, conn.Flush()); err != nil {
			conn.Abort()
			<-ended
			return err
		}
	}
	conn.StartClose(websocket.StatusNormal, "")
	return <-ended
}

// readAcks reads answers until the connection ends.
func (i *ingester) readAcks(conn *websocket.Conn, of *account) error {
	defer conn.Close(websocket.StatusNormal, "")
	conn.SetReadDeadline(time.Now().Add(24 * time.Hour))
	for {
		msgs, err := conn.Read()
		for _, m := range msgs {
			count, err := strconv.Atoi(string(m.Payload))
			if err != nil {
				return err
			}
			i.accounts.mu.Lock()
			of.acked = max(of.acked, count)
			i.accounts.mu.Unlock()
			i.answerTimes.answered(kindIngest)
		}
		if err != nil {
			if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Code == websocket.StatusNormal {
				return nil
			}
			return err
		}
	}
}

// checkIngest reads the table and compares it with the acknowledgements.
func (r *run) checkIngest(ctx context.Context) error {
	held := make(map[content]int)
	err := on(ctx, r.pair.primaryServer(), func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT payload FROM public.messages`)
		if err != nil {
			return err
		}
		var payload []byte
		_, err = pgx.ForEachRow(rows, []any{&payload}, func() error {
			c, err := parseContent(payload)
			held[c]++
			return err
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read what was ingested: %w", err)
	}
	r.accounts.mu.Lock()
	defer r.accounts.mu.Unlock()
	for number, of := range r.accounts.all {
		r.acknowledged += of.acked
		for n := range of.sent {
			c := contentOf(number, n)
			switch {
			case held[c] == 0 && n < of.acked:
				r.lost++
				if r.cfg.Quorum {
					r.ledger.Break(PromiseKept, "ingest: connection %d, message %d of %d that were answered", number, n, of.acked)
				}
			case held[c] > 1:
				r.ledger.Break(PromiseOnce, "ingest: connection %d, message %d is stored %d times", number, n, held[c])
			}
		}
	}
	return nil
}
