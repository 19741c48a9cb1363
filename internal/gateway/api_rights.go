package gateway

import (
	"fmt"

	"github.com/tidewire/tidewire/internal/auth"
)

// maxRights is how many rights a request may ask about.
const maxRights = 100

// askedRight is a right about which a client asks.
type askedRight struct {
	Verb auth.Verb `json:"verb"`
	Kind auth.Kind `json:"kind"`
	Name string    `json:"name"`
	Tags []string  `json:"tags"`
}

// unfit returns why there is no such right, for the right at an index.
func (a *askedRight) unfit(i int) *problem {
	path := func(field string) string { return fmt.Sprintf("rights[%d].%s", i, field) }
	if err := auth.Known(a.Verb, a.Kind); err != nil {
		return &problem{code: codeMalformed, text: path(err.Error())}
	}
	switch {
	case len(a.Name) > maxNameBytes:
		return malformed(path("name"), fmt.Sprintf("at most %d bytes", maxNameBytes))
	case a.Tags != nil && (a.Kind != auth.Events || a.Verb == "admin"):
		return malformed(path("tags"), "tags only with query or append of events")
	}
	return nil
}

// held reports whether a caller has the right. Without a caller, in open mode, everybody has.
func (c *call) held(a *askedRight) (bool, error) {
	switch {
	case c.caller == nil:
		return true, nil
	case a.Tags != nil && a.Verb == "query":
		return c.caller.MayQuery(c.ctx, a.Name, [][]string{a.Tags})
	case a.Tags != nil:
		return c.caller.MayAppend(c.ctx, a.Name, [][]string{a.Tags})
	}
	return c.caller.May(c.ctx, a.Verb, a.Kind, a.Name)
}

// ownRights tells the caller which rights it has, so that a program can offer only what its user may do. That a right is missing is no denial.
func (c *call) ownRights() {
	var body struct {
		Rights []askedRight `json:"rights"`
	}
	if !c.readStrict(&body) {
		return
	}
	if n := len(body.Rights); n == 0 || n > maxRights {
		c.refuseFor(malformed("rights", fmt.Sprintf("1 to %d rights", maxRights)))
		return
	}
	answer := rightsAnswer{Allowed: make([]bool, len(body.Rights))}
	if c.caller != nil {
		answer.Closed, answer.User, answer.Role = true, c.caller.User, c.caller.Role
	}
	for i := range body.Rights {
		if why := body.Rights[i].unfit(i); why != nil {
			c.refuseFor(why)
			return
		}
		var err error
		if answer.Allowed[i], err = c.held(&body.Rights[i]); err != nil {
			c.refuseFor(errUnknownRight)
			return
		}
	}
	c.answer(answer)
}

type rightsAnswer struct {
	Closed  bool   `json:"closed"`
	User    string `json:"user,omitempty"`
	Role    string `json:"role,omitempty"`
	Allowed []bool `json:"allowed"`
}
