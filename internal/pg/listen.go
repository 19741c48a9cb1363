package pg

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Listen calls heard with the payload of every notification on the channel
// until ctx ends. A lost connection is made again, with Backoff; listening is
// called once each connection listens: what was notified before it is lost, so
// whoever relies on more than hints looks for itself then. Both are called by
// this goroutine.
//
// The connection is the pool's, with all that the pool does to new ones, but
// is taken out of it: it does not count towards the pool's size.
func Listen(ctx context.Context, pool *pgxpool.Pool, channel string, log *slog.Logger, listening func(), heard func(payload string)) {
	for failed := 0; ; failed++ {
		err := listenOnce(ctx, pool, channel, func() { failed = 0; listening() }, heard)
		if ctx.Err() != nil {
			return
		}
		log.Warn("not listening, trying again", "channel", channel, "error", err)
		if Backoff(ctx, failed) != nil {
			return
		}
	}
}

// listenOnce listens until the connection or ctx ends.
func listenOnce(ctx context.Context, pool *pgxpool.Pool, channel string, listening func(), heard func(string)) error {
	acquired, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := acquired.Hijack()
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	listening()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		heard(n.Payload)
	}
}
