package gateway

import (
	"errors"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
)

// exchangeKey exchanges the API key of the request for another one.
func (c *call) exchangeKey() {
	a := c.administration()
	if a == nil {
		return
	}
	if c.caller.Kind != auth.ByKey {
		c.refuseFor(&problem{code: codeForbidden, text: "only an API key can be exchanged, not a token: tidewire console makes one", need: needConsole})
		return
	}
	key, expires, err := a.ExchangeKey(c.ctx, c.caller.User, c.caller.KeyID())
	switch {
	case errors.Is(err, auth.ErrInvalidToken):
		c.api.server.authLog.Warn(c.api.server.limits.ClientAddress(c.r), "a key was not exchanged", "error", err)
		c.api.server.unauthorized(c.w, c.r, codeInvalidToken)
	case err != nil:
		c.fail(err, codeUnavailable)
	default:
		c.acted(actExchangeKey, c.caller.KeyID())
		c.answer(struct {
			Key     string    `json:"key"`
			Expires time.Time `json:"expires"`
		}{key, expires.UTC()})
	}
}
