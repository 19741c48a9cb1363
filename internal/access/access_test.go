package access_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/access"
	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

const readOrders = "/v1/streams/orders/messages"

// TestKeys_Rights: a key has its own rights on both doors, and no others; wrong ones are all refused alike.
func TestKeys_Rights(t *testing.T) {
	t.Parallel()
	n := startNode(t, migrated.Open(t).URL, "")
	id, key := n.key("shop", 0, "read stream:orders")
	n.await("GET", readOrders, key, "200")
	if got := n.http("GET", "/v1/streams/other/messages", "", key); got != "403 forbidden" {
		t.Errorf("another stream: %s", got)
	}
	w := n.connect(key)
	if got := w.ask(`"type":"subscribe","stream":"orders"`); got != "ok" {
		t.Errorf("subscribe: %s", got)
	}
	if got := w.ask(`"type":"publish","stream":"orders","payload":"x"`); got != "forbidden" {
		t.Errorf("publish: %s", got)
	}
	if got := n.connect(token(t, "ann", nil)).ask(`"type":"auth","token":"` + key + `"`); got != "identity_mismatch" {
		t.Errorf("the key of a connection that is a user: %s", got)
	}
	last := key[len(key)-1]
	for _, wrong := range []string{
		"tw_", "tw_" + id, key[:len(key)-1], key + "x", key[:len(key)-1] + string(last^1), strings.Replace(key, id, "00000000", 1), strings.ToUpper(key),
		token(t, "key:shop", nil, "read stream:orders"),
	} {
		if got := n.http("GET", readOrders, "", wrong); got != "401 invalid_token" {
			t.Errorf("%q: %s", wrong, got)
		}
	}
}

// TestKeys_WrongOnesAskNothing: a flood of wrong keys costs no query.
func TestKeys_WrongOnesAskNothing(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	store := new(access.Store)
	if err := store.Open(t.Context(), db.Pool, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	policy, err := auth.NewPolicy(auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Access: store.Snapshot})
	if err != nil {
		t.Fatal(err)
	}
	before := db.Pool.Stat().AcquireCount()
	for i := range 100 {
		if _, err := policy.Authenticate(t.Context(), fmt.Sprintf("tw_%08d_%043d", i, i)); err == nil {
			t.Fatal("a wrong key is accepted")
		}
	}
	if asked := db.Pool.Stat().AcquireCount() - before; asked != 0 {
		t.Errorf("%d queries", asked)
	}
}

// TestTokens_Revoked: tokens are revoked by jti, and by user and time, on all servers.
func TestTokens_Revoked(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	a, b := startNode(t, db.URL, ""), startNode(t, db.URL, "")
	admin := token(t, "ops", nil, "connections server:*")
	one, two := token(t, "ann", map[string]any{"jti": "1"}, "read stream:*"), token(t, "ann", map[string]any{"jti": "2"}, "read stream:*")
	oneB, twoB := b.connect(one), b.connect(two)
	if got := a.http("POST", "/v1/tokens/revoke", `{"jti":"1","expires":4000000000}`, one); got != "403 forbidden" {
		t.Errorf("without the right: %s", got)
	}
	if got := a.http("POST", "/v1/tokens/revoke", `{"jti":"1","expires":4000000000}`, admin); got != "200" {
		t.Fatalf("revoke: %s", got)
	}
	if got := a.http("GET", readOrders, "", one); got != "401 invalid_token" { // at once, where it was revoked
		t.Errorf("a revoked token: %s", got)
	}
	if got := oneB.next(); got != "4403" {
		t.Errorf("the connection of a revoked token: %s", got)
	}
	if got := twoB.ask(`"type":"subscribe","stream":"orders"`); got != "ok" {
		t.Errorf("another token of the user: %s", got)
	}
	now := time.Now().Unix()
	older, newer := token(t, "ann", map[string]any{"iat": now - 100}, "read stream:*"), token(t, "ann", map[string]any{"iat": now}, "read stream:*")
	if got := a.http("POST", "/v1/tokens/revoke", fmt.Sprintf(`{"user":"ann","before":%d}`, now-50), admin); got != "200" {
		t.Fatalf("revoke: %s", got)
	}
	for name, want := range map[string]string{older: "401 invalid_token", newer: "200"} {
		b.await("GET", readOrders, name, want)
	}
	if got := a.http("POST", "/v1/tokens/revoke", `{"user":"ann"}`, admin); got != "200" {
		t.Fatalf("revoke: %s", got)
	}
	if got := twoB.next(); got != "4403" {
		t.Errorf("the connection of a revoked user: %s", got)
	}
	b.await("GET", readOrders, newer, "401 invalid_token")
	for body, want := range map[string]string{
		`{}`: "400 malformed", `{"jti":"1","user":"x"}`: "400 malformed", `{"jti":"1","before":5}`: "400 malformed", `{"user":"key:x"}`: "400 malformed",
		`{"usr":"x"}`: "400 unknown_field", `{"jti":"` + strings.Repeat("x", 257) + `"}`: "400 malformed", `{"user":"a\u0000"}`: "400 invalid_name", `[]`: "400 malformed",
	} {
		if got := a.http("POST", "/v1/tokens/revoke", body, admin); got != want {
			t.Errorf("%.40s: %s, want %s", body, got, want)
		}
	}
}

// TestUsers_Disconnected: all connections of a user end, whatever its name is; with reconnect false its tokens end too.
func TestUsers_Disconnected(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	a, b := startNode(t, db.URL, ""), startNode(t, db.URL, "")
	admin := token(t, "ops", nil, "connections server:*")
	bystander := b.connect(token(t, "ann2", nil, "read stream:*"))
	for _, user := range []string{"ann", "100% ä/?#", ".."} {
		path := "/v1/users/" + strings.ReplaceAll(url.PathEscape(user), ".", "%2E") + "/disconnect"
		access := token(t, user, nil, "read stream:*")
		onA, onB := a.connect(access), b.connect(access)
		if got := a.http("POST", path, "", admin); got != "200" {
			t.Fatalf("%s: %s", user, got)
		}
		if gotA, gotB := onA.next(), onB.next(); gotA != "4401" || gotB != "4401" {
			t.Errorf("%s: closed with %s and %s", user, gotA, gotB)
		}
		again := b.connect(access)
		if got := again.ask(`"type":"subscribe","stream":"orders"`); got != "ok" {
			t.Errorf("%s, connected again: %s", user, got)
		}
		if got := a.http("POST", path, `{"reconnect":false}`, admin); got != "200" {
			t.Fatalf("%s: %s", user, got)
		}
		if got := again.next(); got != "4403" {
			t.Errorf("%s: closed with %s", user, got)
		}
		if got := a.http("GET", readOrders, "", access); got != "401 invalid_token" {
			t.Errorf("%s: %s", user, got)
		}
	}
	_, key := a.key("shop", 0, "read stream:orders")
	b.await("GET", readOrders, key, "200")
	w := b.connect(key)
	if got := a.http("POST", "/v1/users/key:shop/disconnect", `{"reconnect":false}`, admin); got != "400 malformed" {
		t.Errorf("the tokens of a key: %s", got)
	}
	if got := a.http("POST", "/v1/users/key:shop/disconnect", `{"reconnect":true}`, admin); got != "200" {
		t.Errorf("a key: %s", got)
	}
	if got := w.next(); got != "4401" {
		t.Errorf("a key: closed with %s", got)
	}
	if got := bystander.ask(`"type":"subscribe","stream":"orders"`); got != "ok" {
		t.Errorf("another user: %s", got)
	}
	var acts, gaps int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE actor = 'ops' AND act = 'user_disconnected') FROM tidewire.access_acts`).Scan(&acts, &gaps); err != nil || acts != 8 || gaps != 4 {
		t.Errorf("%d acts, %d disconnects, %v", acts, gaps, err)
	}
}

// TestStore_DatabaseAway: while the database is away, the last snapshot counts; acts during the time without a listening connection are not missed.
func TestStore_DatabaseAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	prepare(t, server.URL())
	n := startNode(t, server.URL(), "")
	_, key := n.key("shop", 0, "read stream:orders", "join room:*")
	n.await("GET", readOrders, key, "200")
	victim, bystander := n.connect(token(t, "ann", nil, "join room:*")), n.connect(key)
	if err := server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := bystander.ask(`"type":"join","room":"a"`); got != "ok" {
		t.Errorf("while the database is away: %s", got)
	}
	if got := n.connect(key).ask(`"type":"join","room":"a"`); got != "ok" {
		t.Errorf("a new connection while the database is away: %s", got)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	disconnect(t, server.URL(), "ann")
	if got := victim.next(); got != "4401" {
		t.Errorf("closed with %s", got)
	}
}

// TestStore_AnswersWhenApplied: an act that this server has not applied is no success, also if it is committed, and keys are loaded that do not have it. The
// act can be done again.
func TestStore_AnswersWhenApplied(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	n := startNode(t, db.URL, "")
	revoked := token(t, "ann", map[string]any{"jti": "1"}, "read stream:*")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `LOCK TABLE tidewire.api_keys IN ACCESS EXCLUSIVE MODE`); err != nil { // as VACUUM FULL does
		t.Fatal(err)
	}
	is := func(sql string) func() bool {
		return func() (yes bool) {
			if err := db.Pool.QueryRow(t.Context(), sql).Scan(&yes); err != nil {
				t.Fatal(err)
			}
			return yes
		}
	}
	if _, err := db.Pool.Exec(t.Context(), `NOTIFY tidewire_access`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a load has begun, and waits for the keys", is(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`))
	answered := make(chan error, 1)
	revoke := func(ctx context.Context) { answered <- n.store.RevokeToken(ctx, "ops", "1", time.Time{}) }
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go revoke(ctx)
	testkit.Eventually(t, "the act is committed", is(`SELECT count(*) = 1 FROM tidewire.access_acts`))
	giveUp()
	if err := <-answered; err == nil {
		t.Error("an act that this server has not applied is a success")
	}
	go revoke(t.Context())
	testkit.Eventually(t, "the act is committed again", is(`SELECT count(*) = 2 FROM tidewire.access_acts`))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := n.policy.Authenticate(t.Context(), revoked); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("a revoked token: %v", err)
	}
}

// TestTokens_ForgottenWhenOver: a revocation of a user is kept until its tokens have ended, and until the time before which they were issued.
func TestTokens_ForgottenWhenOver(t *testing.T) {
	t.Parallel()
	n := startNode(t, migrated.Open(t).URL, "")
	if _, err := n.pool.Exec(t.Context(), `INSERT INTO tidewire.revoked_tokens (kind, name, issued_before, ends_at) VALUES
		('user', 'over', now() - interval '3 hours', now() - interval '2 hours'), ('user', 'ahead', now() + interval '1 hour', now() - interval '2 hours'),
		('user', 'for good', now() - interval '3 hours', NULL), ('jti', 'over too', NULL, now() - interval '2 hours'), ('jti', 'for good too', NULL, NULL)`); err != nil {
		t.Fatal(err)
	}
	if err := n.store.RevokeToken(t.Context(), "ops", "1", time.Time{}); err != nil {
		t.Fatal(err)
	}
	var left string
	if err := n.pool.QueryRow(t.Context(), `SELECT string_agg(name, ',' ORDER BY name) FROM tidewire.revoked_tokens`).Scan(&left); err != nil || left != "1,ahead,for good,for good too" {
		t.Errorf("left: %s, %v", left, err)
	}
}

// TestStore_TooMany: acts beyond the bounds are refused, and ended revocations are forgotten.
func TestStore_TooMany(t *testing.T) {
	t.Parallel()
	n := startNode(t, migrated.Open(t).URL, "")
	if _, err := n.pool.Exec(t.Context(), `
		INSERT INTO tidewire.revoked_tokens (kind, name, ends_at) SELECT 'jti', n, CASE WHEN n = 1 THEN now() - interval '2 hours' END FROM generate_series(1, 100000) AS n`); err != nil {
		t.Fatal(err)
	}
	admin := token(t, "ops", nil, "connections server:*")
	if got := n.http("POST", "/v1/tokens/revoke", `{"jti":"a"}`, admin); got != "200" {
		t.Errorf("with one that is forgotten: %s", got)
	}
	if got := n.http("POST", "/v1/tokens/revoke", `{"jti":"b"}`, admin); got != "409 too_many_revocations" {
		t.Errorf("the next one: %s", got)
	}
	if got := n.http("POST", "/v1/tokens/revoke", `{"jti":"77","expires":4000000000}`, admin); got != "200" {
		t.Errorf("one that is there already: %s", got)
	}
	if got := n.http("POST", "/v1/tokens/revoke", `{"user":"77"}`, admin); got != "409 too_many_revocations" {
		t.Errorf("a user of the name of a jti: %s", got)
	}
	if got := n.http("GET", readOrders, "", token(t, "ann", map[string]any{"jti": "77"}, "read stream:*")); got != "401 invalid_token" {
		t.Errorf("a revoked token: %s", got)
	}
}
