package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
)

// longestLife is the longest life of an API key in seconds: about 100 years.
const longestLife = 100 * 365 * 24 * 60 * 60

// keyRoutes are those of API keys. Their right is one of its own: who may revoke tokens does not for that reason make callers. See decision 44.
func keyRoutes() map[string]route {
	keys := func(*http.Request) need { return needKeys }
	return map[string]route{
		"GET /v1/keys":               {(*call).listKeys, keys},
		"POST /v1/keys":              {(*call).createKey, keys},
		"POST /v1/keys/{key}/revoke": {(*call).revokeKey, keys},
	}
}

// shownKey is an API key without its secret.
type shownKey struct {
	Key      string     `json:"key"`
	Name     string     `json:"name"`
	Allow    []string   `json:"allow"`
	State    string     `json:"state"`
	Created  time.Time  `json:"created"`
	By       string     `json:"by,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
	Revoked  *time.Time `json:"revoked,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty"`
}

func shown(k auth.KeyInfo, used time.Time) shownKey {
	is := shownKey{Key: k.ID, Name: k.Name, Allow: k.Allow, State: "active", Created: k.Created.UTC(), By: k.By, Expires: k.Expires, Revoked: k.Revoked}
	switch {
	case k.Revoked != nil:
		is.State = "revoked"
	case k.Expired:
		is.State = "expired"
	}
	if !used.IsZero() {
		used = used.UTC()
		is.LastUsed = &used
	}
	return is
}

// listKeys lists the API keys, the newest first.
func (c *call) listKeys() {
	a := c.administration()
	if a == nil {
		return
	}
	keys, err := a.Keys(c.ctx)
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	all := make([]shownKey, len(keys))
	for i, k := range keys {
		all[i] = shown(k, c.api.server.cfg.Auth.Policy.LastUse(k.ID))
	}
	c.answer(c.withNode(map[string]any{"keys": all, "since": c.api.server.recorder.Began().UTC()}))
}

// beyondError is that a caller would give rights that it does not have.
type beyondError struct{ text string }

func (e *beyondError) Error() string { return e.text }

// createKey makes an API key that has no more rights than its maker.
func (c *call) createKey() {
	a := c.administration()
	if a == nil {
		return
	}
	var body struct {
		Name      string   `json:"name"`
		Allow     []string `json:"allow"`
		ExpiresIn *int64   `json:"expires_in"`
	}
	if !c.readStrict(&body) {
		return
	}
	life := time.Duration(0)
	if n := body.ExpiresIn; n != nil {
		if *n < 1 || *n > longestLife {
			c.refuseFor(wrong(engine.CodeInvalid, "expires_in", between(1, longestLife)+", in seconds"))
			return
		}
		life = time.Duration(*n) * time.Second
	}
	rules, err := auth.CheckKey(body.Name, body.Allow)
	if err != nil {
		c.refuseFor(&problem{code: engine.CodeInvalid, text: err.Error()})
		return
	}
	if !c.permit(c.beyond(body.Name, rules)) {
		return
	}
	id, text, err := a.CreateKey(c.ctx, c.caller.User, body.Name, body.Allow, life, c.sameName(body.Name))
	if beyond, is := errors.AsType[*beyondError](err); is {
		c.refuseFor(&problem{code: codeBeyond, text: beyond.text, cause: err})
		return
	}
	switch {
	case errors.Is(err, auth.ErrTooMany):
		c.refuse(codeTooManyKeys)
	case err != nil:
		c.fail(err, codeUnavailable)
	default:
		c.acted(actCreateKey, id+" "+body.Name)
		c.answer(map[string]any{"key": id, "token": text})
	}
}

// beyond returns why the caller cannot make a key of a name and with these rules, or nil.
func (c *call) beyond(name string, rules []auth.Rule) *problem {
	if lacks := c.caller.Lacks(rules); lacks != "" {
		text := fmt.Sprintf("you cannot give %q to a key: none of your own rules grants all of it", lacks)
		return &problem{code: codeBeyond, text: text, cause: errors.New(text)}
	}
	may, err := c.caller.MayName(c.ctx, name)
	switch {
	case err != nil:
		return errUnknownRight
	case !may:
		text := "you cannot make a key of this name: the SQL function on rights decides what a key may do by its name, and does not grant you the verb keys of the kind server with this name"
		return &problem{code: codeBeyond, text: text, cause: errors.New(text)}
	}
	return nil
}

// sameName returns the check that keys of one name, which are one user, have had no more rights than the caller has.
func (c *call) sameName(name string) func([]string) error {
	return func(same []string) error {
		rules, err := auth.ParseLiteralRules(same)
		if err != nil || c.caller.Lacks(rules) != "" {
			return &beyondError{fmt.Sprintf("you cannot make a key named %q: there is or was one of this name, which would be the same user, with rights that you do not have", name)}
		}
		return nil
	}
}

// revokeKey revokes an API key, whatever its rights are.
func (c *call) revokeKey() {
	a := c.administration()
	if a == nil || !c.readStrict(&struct{}{}) {
		return
	}
	id := c.r.PathValue("key")
	err := auth.ErrNoKey
	if validName(id) {
		err = a.RevokeKey(c.ctx, c.caller.User, id)
	}
	if errors.Is(err, auth.ErrNoKey) {
		c.refuseFor(&problem{code: engine.CodeNotFound, text: fmt.Sprintf("there is no active API key %.64q", id)})
		return
	}
	c.done(err, actRevokeKey, id)
}
