package cli

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/queue"
)

// refuseReserved keeps a command from changing what is the server's own, as the
// gateway does; reading it is allowed here.
func refuseReserved(kind, name string) error {
	if !engine.Reserved(name) {
		return nil
	}
	return exit(ExitUsage, "%s %q: names that begin with %s are the server's own; choose another", kind, name, engine.ReservedPrefix)
}

// refuseQueueStream keeps a command from changing the stream of a queue.
func refuseQueueStream(ctx context.Context, pool *pgxpool.Pool, name, instead string) error {
	owns, err := queue.OwnsStream(ctx, pool, name)
	switch {
	case err != nil:
		return explainQueue(err)
	case owns:
		return exit(ExitUsage, "stream %q holds the messages of a queue: %s", name, instead)
	}
	return nil
}
