package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/auth"
)

// latestSecond is the last second of the year 9999, since 1970.
const latestSecond = 253402300799

// Administration records acts of administrators in the database, from where all servers get them in the same order. Its methods return after the commit, and
// when this server has applied the act. The error is auth.ErrTooMany, or another one after which the act may be tried again. A second
// disconnect ends the connections made since the first, too.
type Administration interface {
	// OnChange has changed called after keys, revocations or rights have changed, one call at a time. It is called once, before the first connection.
	OnChange(changed func(auth.Change))
	// DisconnectUser ends the connections of a user, on all servers.
	DisconnectUser(ctx context.Context, actor, user string) error
	// RevokeUser revokes the tokens of a user that were issued before a time, by default now. They can be forgotten after ends, by default never.
	RevokeUser(ctx context.Context, actor, user string, before, ends time.Time) error
	// RevokeToken revokes the token with that jti. It can be forgotten after ends, by default never.
	RevokeToken(ctx context.Context, actor, jti string, ends time.Time) error
	// Keys returns all API keys, the newest first.
	Keys(ctx context.Context) ([]auth.KeyInfo, error)
	// CreateKey makes an API key that ends after life, or never if that is zero, and returns its text, which is kept nowhere. permit may refuse it: it gets
	// the rights of all keys of that name, also of revoked ones.
	CreateKey(ctx context.Context, actor, name string, allow []string, life time.Duration, permit func(same []string) error) (id, text string, err error)
	// RevokeKey revokes an API key. The error is auth.ErrNoKey if there is no active one of that id.
	RevokeKey(ctx context.Context, actor, id string) error
	// ExchangeKey revokes an API key, and makes one with its other rights. It returns the text of that, and when it ends.
	ExchangeKey(ctx context.Context, actor, id string) (text string, expires time.Time, err error)
}

// administration returns what records acts, or nil if it has refused the call. In open mode there are no users and no tokens.
func (c *call) administration() Administration {
	a := c.api.server.cfg.Auth.Administration
	if a == nil || c.caller == nil {
		c.refuseFor(&problem{code: codeNotServed, text: "this server requires no tokens, so it has no users that it knows: start it with --auth-secret-file or another key"})
		return nil
	}
	return a
}

// disconnect ends all connections of a user.
func (c *call) disconnect() {
	a := c.administration()
	if a == nil {
		return
	}
	var body struct {
		Reconnect *bool `json:"reconnect"`
	}
	if !c.readStrict(&body) {
		return
	}
	user := c.r.PathValue("user")
	if !auth.ValidUser(user) {
		c.refuse(codeName)
		return
	}
	if body.Reconnect == nil || *body.Reconnect {
		c.done(a.DisconnectUser(c.ctx, c.caller.User, user), actDisconnect, user)
		return
	}
	if why := revocable(user); why != nil {
		c.refuseFor(why)
		return
	}
	c.done(a.RevokeUser(c.ctx, c.caller.User, user, time.Time{}, time.Time{}), actRevokeUser, user)
}

// revokeTokens revokes one token, or those of a user.
func (c *call) revokeTokens() {
	a := c.administration()
	if a == nil {
		return
	}
	var body struct {
		JTI     string `json:"jti"`
		User    string `json:"user"`
		Before  *int64 `json:"before"`
		Expires *int64 `json:"expires"`
	}
	if !c.readStrict(&body) {
		return
	}
	before, whyBefore := second("before", body.Before)
	ends, whyEnds := second("expires", body.Expires)
	switch {
	case whyBefore != nil:
		c.refuseFor(whyBefore)
	case whyEnds != nil:
		c.refuseFor(whyEnds)
	case body.Expires != nil && !ends.After(time.Now()):
		c.refuseFor(malformed("expires", "a time that is still to come: when the last token that it is about ends"))
	case (body.JTI == "") == (body.User == ""):
		c.refuseFor(malformed("jti", "either jti or user"))
	case body.User != "":
		if why := revocable(body.User); why != nil {
			c.refuseFor(why)
			return
		}
		c.done(a.RevokeUser(c.ctx, c.caller.User, body.User, before, ends), actRevokeUser, body.User)
	case len(body.JTI) > auth.MaxTokenID || strings.IndexByte(body.JTI, 0) >= 0:
		c.refuseFor(malformed("jti", fmt.Sprintf("at most %d bytes without NUL", auth.MaxTokenID)))
	case body.Before != nil:
		c.refuseFor(malformed("before", "none beside jti"))
	default:
		c.done(a.RevokeToken(c.ctx, c.caller.User, body.JTI, ends), actRevokeToken, body.JTI)
	}
}

// revocable returns why a user's tokens cannot be revoked.
func revocable(user string) *problem {
	switch {
	case !auth.ValidUser(user):
		return because(codeName)
	case auth.IsKeyUser(user):
		return malformed("user", "a user with tokens: an API key is revoked with POST /v1/keys/{key}/revoke, or with tidewire keys revoke")
	}
	return nil
}

// second is a time in seconds since 1970, or zero.
func second(field string, n *int64) (time.Time, *problem) {
	if n == nil {
		return time.Time{}, nil
	}
	if *n < 1 || *n > latestSecond {
		return time.Time{}, malformed(field, "seconds since 1970")
	}
	return time.Unix(*n, 0), nil
}

// readStrict reads the body, an object that may be missing, or refuses the call. Fields that it does not know are refused: a misspelled one would
// have an act do less than it says.
func (c *call) readStrict(into any) bool {
	body, ok := c.read()
	if !ok || len(bytes.TrimSpace(body)) == 0 {
		return ok
	}
	if mediaType(c.r) != "application/json" {
		c.refuse(codeMediaType)
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if _, rest := d.Token(); err == nil && rest != io.EOF {
		err = errors.New("more than an object")
	}
	switch {
	case !bytes.HasPrefix(trimSpace(body), []byte{'{'}):
		c.refuseFor(errNoObject)
	case !utf8.Valid(body):
		c.refuseFor(errNoUTF8)
	case err != nil && strings.HasPrefix(err.Error(), "json: unknown field "):
		field := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		field = pathOfKey(body, field)
		c.refuseFor(&problem{code: codeUnknownField, text: field + ": this request has no such field", field: field})
	case err != nil:
		c.refuseFor(undecodable(body, err))
	default:
		return true
	}
	return false
}

// done answers after an act, and records it.
func (c *call) done(err error, act, target string) {
	switch {
	case err == nil:
		c.acted(act, target)
		c.answer(struct{}{})
	case errors.Is(err, auth.ErrTooMany):
		c.refuse(codeTooManyRevocations)
	default:
		c.fail(err, codeUnavailable)
	}
}

// accessRoutes are the routes for acts on users and tokens.
func accessRoutes() map[string]route {
	administrators := func(*http.Request) need { return needConnections }
	return map[string]route{
		"POST /v1/users/{user}/disconnect": {(*call).disconnect, administrators},
		"POST /v1/keys/exchange":           {(*call).exchangeKey, func(*http.Request) need { return needConsole }},
		"POST /v1/rights":                  {(*call).ownRights, nil},
		"POST /v1/tokens/revoke":           {(*call).revokeTokens, administrators},
	}
}
