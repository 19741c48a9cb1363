package hostile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// feeder ingests with acknowledgements, which are counts of the messages of a connection.
type feeder struct {
	w     *world
	acked []string
}

func (*feeder) lines() int { return 1 }

func (f *feeder) make() {
	n := 0
	f.w.keep("feeder", "/ws/ingest?ack=1", func(l *line) error {
		var sent []string
		acked := 0
		for {
			for f.w.producing.Err() == nil && len(sent)-acked < 20 && !l.in.stopping() {
				n++
				sent = append(sent, fmt.Sprint("feed ", n))
				l.asked[0] = time.Now() // an acknowledgement has no id
				l.say("%s", sent[len(sent)-1])
			}
			if f.w.producing.Err() != nil && acked == len(sent) {
				return nil
			}
			before := acked
			err := l.next(func(m message) {
				f.acked = append(f.acked, sent[acked:m.Count]...)
				acked = int(m.Count)
			})
			if err != nil {
				return err
			}
			if acked > before {
				time.Sleep(pause) // pace: of a well-behaved client
			}
		}
	})
}

func (f *feeder) take() {}

func (f *feeder) check(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, `SELECT convert_from(payload, 'UTF8'), count(*) FROM public.messages WHERE payload LIKE 'feed %'::bytea GROUP BY 1`)
	if err != nil {
		return err
	}
	defer rows.Close()
	times := make(map[string]int)
	for rows.Next() {
		var payload string
		var n int
		if err := rows.Scan(&payload, &n); err != nil {
			return err
		}
		if times[payload] = n; n > 1 {
			f.w.fault("feeder", "stored twice", "%q, %d times", payload, n)
		}
	}
	for _, payload := range f.acked {
		if times[payload] == 0 {
			f.w.fault("feeder", "lost", "%q was acknowledged", payload)
		}
	}
	f.w.sent += len(f.acked)
	f.w.t.Logf("ingest: %d acknowledged, %d stored", len(f.acked), len(times))
	return rows.Err()
}
