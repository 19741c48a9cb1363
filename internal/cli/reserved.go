package cli

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/queue"
)

// refuseReserved prevents that a command changes an object with a reserved
// name, which belongs to the server. The gateway does the same. Commands may
// read such objects.
func refuseReserved(kind, name string) error {
	if !engine.Reserved(name) {
		return nil
	}
	return exit(ExitUsage, "%s %q: names that begin with %s are reserved for the server; choose another", kind, name, engine.ReservedPrefix)
}

// refuseQueueStream prevents that a command changes the stream of a queue.
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
