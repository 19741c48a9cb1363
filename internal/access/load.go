package access

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/auth"
)

const (
	keysSQL = `SELECT id, name, digest, allow, expires_at FROM tidewire.api_keys WHERE revoked_at IS NULL`
	// revokedSQL reads all revocations: those that have ended do no harm.
	revokedSQL = `SELECT kind, name, coalesce(issued_before, 'epoch') FROM tidewire.revoked_tokens`
	// lastSQL reads the last act, and actsSQL the users who were disconnected since an act.
	lastSQL = `SELECT coalesce(max(id), 0) FROM tidewire.access_acts`
	actsSQL = `SELECT DISTINCT target FROM tidewire.access_acts WHERE id > $1 AND act = 'user_disconnected'`
)

// loaded is what a load has found besides the snapshot.
type loaded struct {
	last         int64    // the last act
	disconnected []string // users who were disconnected since the load before
}

// load reads everything as of one moment. after is the last act that the load before has found; the first load looks for no disconnected users, because there
// are no connections. Only Open and Run call it.
func (s *Store) load(ctx context.Context, after int64) (got loaded, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var snapshot *auth.Snapshot
	first := s.now.Load() == nil
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, lastSQL).Scan(&got.last); err != nil {
			return err
		}
		if !first {
			rows, _ := tx.Query(ctx, actsSQL, after)
			if got.disconnected, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
				return err
			}
		}
		snapshot, err = s.read(ctx, tx)
		return err
	})
	if err != nil {
		return loaded{}, err
	}
	s.now.Store(snapshot)
	return got, nil
}

func (s *Store) read(ctx context.Context, tx pgx.Tx) (*auth.Snapshot, error) {
	var keys []auth.APIKey
	var digest []byte
	var allow []string
	var expires *time.Time
	var k auth.APIKey
	rows, _ := tx.Query(ctx, keysSQL)
	_, err := pgx.ForEachRow(rows, []any{&k.ID, &k.Name, &digest, &allow, &expires}, func() error {
		key := auth.APIKey{ID: k.ID, Name: k.Name, Digest: [32]byte(digest), Allow: s.rules(k.ID, allow)}
		if expires != nil {
			key.Expires = *expires
		}
		keys = append(keys, key)
		return nil
	})
	if err != nil {
		return nil, err
	}
	tokens, users := make(map[string]struct{}), make(map[string]time.Time)
	var kind, name string
	var before time.Time
	rows, _ = tx.Query(ctx, revokedSQL)
	_, err = pgx.ForEachRow(rows, []any{&kind, &name, &before}, func() error {
		if kind == "user" {
			users[name] = before
		} else {
			tokens[name] = struct{}{}
		}
		return nil
	})
	return auth.NewSnapshot(keys, tokens, users), err
}

// rules parses the rights of a key. What cannot be parsed, because it was written by hand or by a newer version, grants nothing.
func (s *Store) rules(id string, texts []string) []auth.Rule {
	var rules []auth.Rule
	for _, text := range texts {
		rule, err := auth.ParseLiteralRule(text)
		if err != nil {
			s.log.Warn("a rule of an API key cannot be read, and grants nothing", "key", id, "error", err)
			continue
		}
		rules = append(rules, rule)
	}
	return rules
}
