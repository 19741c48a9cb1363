package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// maxKeys and maxRevocations bound what every server holds in memory: some 20 MB.
	maxKeys        = 10_000
	maxRevocations = 100_000
	// lockTimeout bounds the wait for another act.
	lockTimeout = 10 * time.Second
)

const (
	lockSQL   = `SELECT tidewire.lock_access()`
	recordSQL = `SELECT tidewire.record_access_act($1, $2, $3, $4)`

	countKeysSQL = `SELECT count(*) FROM tidewire.api_keys WHERE revoked_at IS NULL`
	insertKeySQL = `INSERT INTO tidewire.api_keys (id, name, digest, allow, expires_at) VALUES ($1, $2, $3, $4, $5)`
	revokeKeySQL = `UPDATE tidewire.api_keys SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL RETURNING name`
	sameKeysSQL  = `SELECT unnest(allow) FROM tidewire.api_keys WHERE name = $1`
	listKeysSQL  = `
SELECT k.id, k.name, k.allow, k.created_at, k.expires_at, k.revoked_at, coalesce(k.expires_at <= clock_timestamp(), false), coalesce(a.actor, '')
FROM tidewire.api_keys AS k LEFT JOIN tidewire.access_acts AS a ON a.act = 'key_created' AND a.target = k.id ORDER BY k.created_at, k.id`

	// forgetSQL deletes revocations of tokens that have expired, with an hour for the leeway of servers. One that is about tokens which are still to be issued
	// counts until then, whatever its end.
	forgetSQL = `DELETE FROM tidewire.revoked_tokens WHERE greatest(ends_at, issued_before) < clock_timestamp() - interval '1 hour' AND ends_at IS NOT NULL`
	// countOthersSQL counts all revocations but one: to revoke again what is revoked needs no room.
	countOthersSQL = `SELECT count(*) FROM tidewire.revoked_tokens WHERE (kind, name) <> ($1, $2)`
	revokeTokenSQL = `
INSERT INTO tidewire.revoked_tokens AS r (kind, name, ends_at) VALUES ('jti', $1, $2)
ON CONFLICT (kind, name) DO UPDATE SET ends_at = CASE WHEN r.ends_at IS NULL OR excluded.ends_at IS NULL THEN NULL ELSE greatest(r.ends_at, excluded.ends_at) END`
	revokeUserSQL = `
INSERT INTO tidewire.revoked_tokens AS r (kind, name, issued_before, ends_at) VALUES ('user', $1, coalesce($2, clock_timestamp()), $3)
ON CONFLICT (kind, name) DO UPDATE SET issued_before = greatest(r.issued_before, excluded.issued_before),
	ends_at = CASE WHEN r.ends_at IS NULL OR excluded.ends_at IS NULL THEN NULL ELSE greatest(r.ends_at, excluded.ends_at) END
RETURNING issued_before`
)

// Errors of acts.
var (
	// ErrNoKey: there is no key of that id, or it is revoked already.
	ErrNoKey = auth.ErrNoKey
	// ErrNotApplied: the act is committed, and this server has not applied it in time. It goes on trying; to do the act again does no harm.
	ErrNotApplied = errors.New("access: the act is committed, but this server has not applied it yet: try again until there is no error")
)

// act is an act that is being recorded.
type act struct {
	actor, name, target string
	detail              map[string]any
}

// perform does something and records it, in one transaction. All acts of the database come one after the other.
func perform(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, a *act, do func(tx pgx.Tx) error) (id int64, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		for _, sql := range []string{pg.WriterSettings(lockTimeout), lockSQL} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := do(tx); err != nil {
			return err
		}
		if a.detail == nil {
			a.detail = map[string]any{}
		}
		return tx.QueryRow(ctx, recordSQL, a.actor, a.name, a.target, a.detail).Scan(&id)
	})
	if err == nil {
		log.Debug("access: "+a.name, "actor", a.actor, "target", a.target, "act", id, "detail", a.detail) // the gateway's audit log has a line
	}
	return id, err
}

// below returns auth.ErrTooMany unless a count is below a bound.
func below(ctx context.Context, tx pgx.Tx, most int, countSQL string, args ...any) error {
	var n int
	if err := tx.QueryRow(ctx, countSQL, args...).Scan(&n); err != nil {
		return err
	}
	if n >= most {
		return fmt.Errorf("%w: there are %d, the most is %d", auth.ErrTooMany, n, most)
	}
	return nil
}

// optional is nil for the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// details are the times of an act that are not zero.
func details(times map[string]time.Time) map[string]any {
	all := make(map[string]any)
	for name, t := range times {
		if !t.IsZero() {
			all[name] = t.UTC().Format(time.RFC3339Nano)
		}
	}
	return all
}

// The methods of Store below return nil after the commit, and when this server has applied the act. After any other error than auth.ErrTooMany it is not known
// whether the act is committed, and it may be done again. A second disconnect ends the connections made since the first, too.

// DisconnectUser ends the connections of a user, on all servers.
func (s *Store) DisconnectUser(ctx context.Context, actor, user string) error {
	return s.perform(ctx, &act{actor: actor, name: "user_disconnected", target: user}, func(pgx.Tx) error { return nil })
}

// RevokeUser revokes the tokens of a user that were issued before a time, by default now. They can be forgotten after ends, by default never.
func (s *Store) RevokeUser(ctx context.Context, actor, user string, before, ends time.Time) error {
	a := &act{actor: actor, name: "user_revoked", target: user}
	return s.perform(ctx, a, func(tx pgx.Tx) error {
		if err := room(ctx, tx, "user", user); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, revokeUserSQL, user, optional(before), optional(ends)).Scan(&before); err != nil {
			return err
		}
		a.detail = details(map[string]time.Time{"issued_before": before, "expires": ends})
		return nil
	})
}

// RevokeToken revokes the token with that jti. It can be forgotten after ends, by default never.
func (s *Store) RevokeToken(ctx context.Context, actor, jti string, ends time.Time) error {
	a := &act{actor: actor, name: "token_revoked", target: jti, detail: details(map[string]time.Time{"expires": ends})}
	return s.perform(ctx, a, func(tx pgx.Tx) error {
		if err := room(ctx, tx, "jti", jti); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, revokeTokenSQL, jti, optional(ends))
		return err
	})
}

// room forgets revocations of tokens that have expired, and fails if there are still too many for one of that kind and name.
func room(ctx context.Context, tx pgx.Tx, kind, name string) error {
	if _, err := tx.Exec(ctx, forgetSQL); err != nil {
		return err
	}
	return below(ctx, tx, maxRevocations, countOthersSQL, kind, name)
}

// perform is the function perform, and waits until the act has begun to have its effects on this server. The error is ErrNotApplied if that does not happen
// within awaitTimeout.
func (s *Store) perform(ctx context.Context, a *act, do func(tx pgx.Tx) error) error {
	id, err := perform(ctx, s.pool, s.log, a, do)
	if err != nil {
		return err
	}
	return s.await(ctx, id)
}
