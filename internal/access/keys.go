package access

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/auth"
)

// Key is an API key as it is listed.
type Key struct {
	ID, Name         string
	Allow            []string
	Created          time.Time
	Expires, Revoked *time.Time // nil: never
	Expired          bool       // by the clock of the database
}

// CreateKey makes an API key and returns its text, which is kept nowhere. It ends after life, or never if that is zero.
func CreateKey(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, actor, name string, allow []string, life time.Duration) (id, text string, err error) {
	key, text, err := auth.NewAPIKey(name, allow, time.Time{})
	if err != nil {
		return "", "", &InvalidError{err}
	}
	a := &act{actor: actor, name: "key_created", target: key.ID}
	_, err = perform(ctx, pool, log, a, func(tx pgx.Tx) error {
		if err := below(ctx, tx, maxKeys, countKeysSQL); err != nil {
			return err
		}
		if life > 0 { // by the clock of the database
			if err := tx.QueryRow(ctx, `SELECT clock_timestamp() + $1::interval`, life).Scan(&key.Expires); err != nil {
				return err
			}
		}
		a.detail = details(map[string]time.Time{"expires": key.Expires})
		a.detail["name"], a.detail["allow"] = name, allow
		_, err := tx.Exec(ctx, insertKeySQL, key.ID, name, key.Digest[:], allow, optional(key.Expires))
		return err
	})
	return key.ID, text, err
}

// InvalidError is the error of a key that cannot be made: its name or its rules are wrong.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

// RevokeKey revokes a key. The error is ErrNoKey if there is none of that id, or it is revoked already.
func RevokeKey(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, actor, id string) error {
	a := &act{actor: actor, name: "key_revoked", target: id}
	_, err := perform(ctx, pool, log, a, func(tx pgx.Tx) error {
		var name string
		err := tx.QueryRow(ctx, revokeKeySQL, id).Scan(&name)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNoKey
		}
		a.detail = map[string]any{"name": name}
		return err
	})
	return err
}

// ListKeys returns all keys, also expired and revoked ones.
func ListKeys(ctx context.Context, pool *pgxpool.Pool) ([]Key, error) {
	rows, _ := pool.Query(ctx, listKeysSQL)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
}
