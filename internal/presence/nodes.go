package presence

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

const (
	beatSQL = `
UPDATE tidewire.presence_nodes AS n SET seen_at = clock_timestamp() FROM tidewire.stream AS s
WHERE n.node = $1 AND n.stream = s.id AND s.name = $2 AND s.state = 'ready'`

	// registerSQL also deletes the rows of streams that are gone.
	registerSQL = `
WITH gone AS (DELETE FROM tidewire.presence_nodes AS n WHERE n.node <> $1 AND NOT EXISTS (SELECT FROM tidewire.stream AS s WHERE s.id = n.stream))
INSERT INTO tidewire.presence_nodes (node, stream) SELECT $1, id FROM tidewire.stream WHERE name = $2 AND state = 'ready'
ON CONFLICT (node) DO UPDATE SET stream = excluded.stream, seen_at = excluded.seen_at`

	goneSQL = `DELETE FROM tidewire.presence_nodes 
WHERE stream = (SELECT id FROM tidewire.stream WHERE name = $1 AND state = 'ready') AND node <> $2 AND seen_at < clock_timestamp() - $3::interval RETURNING node`

	unregisterSQL = `DELETE FROM tidewire.presence_nodes WHERE node = $1`

	// lastQuery bounds the deletion of the row when the server stops.
	lastQuery = time.Second
)

// watch says that this server lives, and looks for others that do not, until ctx ends. It judges others only after it has been able to say so itself for as long
// as it takes to count as gone: after an outage of PostgreSQL the rows of all servers are old.
func (r *Recorder) watch(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Beat)
	defer tick.Stop()
	var well time.Time // since when all beats have succeeded
	for {
		err := r.beat(ctx)
		switch {
		case err != nil:
			well = time.Time{}
			r.cfg.Log.Debug("this server cannot say that it lives; trying again", "stream", r.cfg.Stream, "error", err)
		case well.IsZero():
			well = time.Now()
		case time.Since(well) >= r.cfg.GoneAfter:
			if err := r.buryOthers(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("it cannot be told that other servers are gone; trying again", "stream", r.cfg.Stream, "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// beat writes the time into the row of this server. If the row is gone, others have told that this server is, or the stream is another one; if the database
// has another history, a failover may have lost events: then the picture is told anew.
func (r *Recorder) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Beat)
	defer cancel()
	history, err := migrate.EnterHistory(ctx, r.cfg.Pool)
	if err != nil {
		return err
	}
	done, err := r.cfg.Pool.Exec(ctx, beatSQL, r.cfg.Node, r.cfg.Stream)
	if err != nil {
		return fmt.Errorf("write the row of this server: %w", err)
	}
	gone := done.RowsAffected() == 0
	if gone {
		err = r.register(ctx) // before the picture is told: somebody will say that the node is gone
	}
	if r.history.Swap(history) != history || gone {
		r.tellAnew() // also if there is no stream: it is made again
	}
	return err
}

// register writes the row of this server.
func (r *Recorder) register(ctx context.Context) error {
	done, err := r.cfg.Pool.Exec(ctx, registerSQL, r.cfg.Node, r.cfg.Stream)
	if err == nil && done.RowsAffected() == 0 {
		err = stream.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("write the row of this server for the stream %q: %w", r.cfg.Stream, err)
	}
	return nil
}

// buryOthers tells of servers that have died, and forgets them, in one transaction. So a server that lives all the same finds its row gone only after
// that is told.
func (r *Recorder) buryOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.GoneAfter)
	defer cancel()
	return pgx.BeginTxFunc(ctx, r.cfg.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, goneSQL, r.cfg.Stream, r.cfg.Node, r.cfg.GoneAfter.String())
		if err != nil {
			return err
		}
		nodes, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if len(nodes) == 0 {
			return nil
		}
		target, err := stream.Lookup(ctx, r.cfg.Pool, r.cfg.Stream)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			r.cfg.Log.Info("a server of the presence stream is gone", "node", node)
			for _, e := range toAll(target, node, &event{kind: nodeLeft, at: now()}) {
				if err := target.AppendTx(ctx, tx, stream.Message{Key: e.key, Payload: e.payload}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// unregister deletes the row. If that fails, another server tells that this one is gone, too.
func (r *Recorder) unregister() {
	ctx, cancel := context.WithTimeout(context.Background(), lastQuery)
	defer cancel()
	if _, err := r.cfg.Pool.Exec(ctx, unregisterSQL, r.cfg.Node); err != nil {
		r.cfg.Log.Debug("the row of this server is left", "error", err)
	}
}
