package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/auth"
)

// exchangedLife is how long a key holds that a one-time key was exchanged for: a working day.
const exchangedLife = 12 * time.Hour

const exchangeKeySQL = `
UPDATE tidewire.api_keys SET revoked_at = clock_timestamp()
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
RETURNING name, allow, clock_timestamp() + $2::interval`

// ExchangeKey revokes a key, and makes one with its other rights: without "console server:*", which is the right to do this. So a key that was seen by others on
// its way, such as in the address of a browser, is of no use to them. It returns the text of the new key, and when that ends. The error is
// auth.ErrInvalidToken if the key was exchanged already, is over, or has no other rights.
func (s *Store) ExchangeKey(ctx context.Context, actor, id string) (text string, expires time.Time, err error) {
	a := &act{actor: actor, name: "key_exchanged", target: id}
	err = s.perform(ctx, a, func(tx pgx.Tx) error {
		var name string
		var had []string
		err := tx.QueryRow(ctx, exchangeKeySQL, id, exchangedLife).Scan(&name, &had, &expires)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: the key %s was exchanged already, or is over", auth.ErrInvalidToken, id)
		}
		if err != nil {
			return err
		}
		allow, err := without(had)
		if err != nil {
			return err
		}
		key, made, err := auth.NewAPIKey(name, allow, expires)
		if err != nil {
			return fmt.Errorf("%w: exchange the key %s: %w", auth.ErrInvalidToken, id, err)
		}
		text = made
		a.detail = details(map[string]time.Time{"expires": expires})
		a.detail["name"], a.detail["key"] = name, key.ID
		_, err = tx.Exec(ctx, insertKeySQL, key.ID, name, key.Digest[:], allow, expires)
		return err
	})
	return text, expires, err
}

// without returns the rules without the right to exchange a key.
func without(rules []string) (left []string, err error) {
	for _, text := range rules {
		r, err := auth.ParseLiteralRule(text)
		if err != nil {
			return nil, err
		}
		if text = r.Without(auth.Server, "console"); text != "" {
			left = append(left, text)
		}
	}
	return left, nil
}
