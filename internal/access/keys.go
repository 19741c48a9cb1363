package access

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/auth"
)

// CreateKey makes an API key and returns its text, which is kept nowhere. It ends after life, or never if that is zero.
func CreateKey(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, actor, name string, allow []string, life time.Duration) (id, text string, err error) {
	id, text, _, err = createKey(ctx, pool, log, actor, name, allow, life, nil)
	return id, text, err
}

// createKey is CreateKey. permit, if it is there, may refuse it: it gets the rights of all keys of that name, which are the same user, also of revoked ones.
func createKey(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, actor, name string, allow []string, life time.Duration, permit func(same []string) error) (id, text string, actID int64, err error) {
	key, text, err := auth.NewAPIKey(name, allow, time.Time{})
	if err != nil {
		return "", "", 0, &InvalidError{err}
	}
	a := &act{actor: actor, name: "key_created", target: key.ID}
	actID, err = perform(ctx, pool, log, a, func(tx pgx.Tx) error {
		if permit != nil {
			rows, _ := tx.Query(ctx, sameKeysSQL, name)
			same, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err == nil {
				err = permit(same)
			}
			if err != nil {
				return err
			}
		}
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
	return key.ID, text, actID, err
}

// InvalidError is the error of a key that cannot be made: its name or its rules are wrong.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

// RevokeKey revokes a key. The error is ErrNoKey if there is none of that id, or it is revoked already.
func RevokeKey(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, actor, id string) error {
	_, err := revokeKey(ctx, pool, log, actor, id)
	return err
}

func revokeKey(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, actor, id string) (actID int64, err error) {
	a := &act{actor: actor, name: "key_revoked", target: id}
	return perform(ctx, pool, log, a, func(tx pgx.Tx) error {
		var name string
		err := tx.QueryRow(ctx, revokeKeySQL, id).Scan(&name)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNoKey
		}
		a.detail = map[string]any{"name": name}
		return err
	})
}

// ListKeys returns all keys, also expired and revoked ones.
func ListKeys(ctx context.Context, pool *pgxpool.Pool) ([]auth.KeyInfo, error) {
	rows, _ := pool.Query(ctx, listKeysSQL)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[auth.KeyInfo])
}

// CreateKey is the function CreateKey, for a request: the key counts here when it returns. permit may refuse it: it gets the rights of all keys of that name,
// which are the same user, also of revoked ones.
func (s *Store) CreateKey(ctx context.Context, actor, name string, allow []string, life time.Duration, permit func(same []string) error) (id, text string, err error) {
	id, text, act, err := createKey(ctx, s.pool, s.log, actor, name, allow, life, permit)
	if err == nil {
		s.await(ctx, act) // the text is shown once, so it is no failure if the key counts here only later
	}
	return id, text, err
}

// RevokeKey is the function RevokeKey. The key does not count here any more when it returns nil.
func (s *Store) RevokeKey(ctx context.Context, actor, id string) error {
	act, err := revokeKey(ctx, s.pool, s.log, actor, id)
	if err != nil {
		return err
	}
	return s.await(ctx, act)
}

// Keys is ListKeys, the newest first.
func (s *Store) Keys(ctx context.Context) ([]auth.KeyInfo, error) {
	keys, err := ListKeys(ctx, s.pool)
	slices.Reverse(keys)
	return keys, err
}
