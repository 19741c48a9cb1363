package hostile

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/websocket"
)

// feeder ingests with acknowledgements.
type feeder struct {
	w *world

	acked []string
}

func (f *feeder) make() {
	n := 0
	f.w.keep("feeder", "/ws/ingest?ack=1", func(l *line) error {
		var sent []string
		acked := 0
		asked := time.Now()
		for {
			for f.w.producing.Err() == nil && len(sent)-acked < 20 && !l.in.stopping() {
				n++
				sent = append(sent, fmt.Sprint("feed ", n))
				l.say("%s", sent[len(sent)-1])
			}
			if f.w.producing.Err() != nil && acked == len(sent) {
				return nil
			}
			count, err := f.next(l)
			if count > acked {
				f.acked = append(f.acked, sent[acked:count]...)
				acked, asked = count, time.Now()
			}
			if err != nil {
				return err
			}
			if time.Since(asked) > patience && !l.in.stopping() {
				f.w.fault("feeder", "no answer", "%d of %d messages acknowledged, and no more within %v", acked, len(sent), patience)
				asked = time.Now()
			}
			time.Sleep(f.w.pause)
		}
	})
}

// next returns the newest count there is, or 0.
func (f *feeder) next(l *line) (count int, err error) {
	if err := f.w.giveUp.Err(); err != nil {
		return 0, err
	}
	l.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	raws, err := l.Read()
	for _, raw := range raws {
		if raw.Op == websocket.OpText {
			if count, err = strconv.Atoi(string(raw.Payload)); err != nil {
				f.w.fault("feeder", "not understood", "%q", raw.Payload)
			}
		}
	}
	if isTimeout(err) {
		err = nil
	}
	return count, err
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
		times[payload] = n
		if n > 1 {
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
