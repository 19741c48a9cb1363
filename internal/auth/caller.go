package auth

import (
	"context"
	"sync/atomic"
	"time"
)

// CallerKind is how a caller has said who it is.
type CallerKind uint8

// The kinds of callers.
const (
	ByToken     CallerKind = iota // User is the sub of a token
	ByKey                         // User is key: and the name of an API key; no token can have such a sub
	ByAnonymous                   // User is empty
)

// Caller is who a connection or request is. It never changes: a new token makes a new Caller. User is a stable identity: the same for all
// tokens of a user, and for all API keys of one name. Safe for concurrent use.
type Caller struct {
	User    string
	Role    string
	Kind    CallerKind
	Issued  time.Time // zero if the token does not say
	Expires time.Time // when the token ends for this server: its exp and the leeway; zero if it never does

	jti, keyID string // of the token, or of the API key
	grants     *Grants
	answers    *answers // nil if rules alone decide
	id         callerID
	claims     []byte
	token      *Claims // nil of an API key and of an anonymous caller
	rules      *Config // whose rules the grants are of; nil of an API key
	asked      atomic.Bool
}

// KeyID is the id of the caller's API key, "" if it has none.
func (c *Caller) KeyID() string { return c.keyID }

// May reports whether the caller has the right. Names are compared as they are: partition 3 of the stream orders is orders/3, and needs a rule such as
// "read stream:orders/*", because a stream of that name may also have nothing to do with orders.
//
// If no rule grants the right, and there is a Config.Ask, May waits for its answer, up to 2 s, or until ctx ends. With an error it is not known
// whether the caller has the right.
func (c *Caller) May(ctx context.Context, v Verb, k Kind, name string) (bool, error) {
	if c.grants.Allow(v, k, name) {
		return true, nil
	}
	return c.ask(ctx, v, k, name)
}

// MayQuery is May for what matches each of these sets of tags, the items of a query: without any, everything.
func (c *Caller) MayQuery(ctx context.Context, store string, items [][]string) (bool, error) {
	if c.grants.AllowTags("query", store, items) {
		return true, nil
	}
	return c.ask(ctx, "query", Events, store)
}

// MayAppend is May for events with these sets of tags.
func (c *Caller) MayAppend(ctx context.Context, store string, events [][]string) (bool, error) {
	if c.grants.AllowTags("append", store, events) {
		return true, nil
	}
	return c.ask(ctx, "append", Events, store)
}

// MayTakeID is May for an event of these tags with the id. Ids are unique in a store: a caller whose right to append is limited to tags takes only ids that
// begin with one of them and a slash, so that it cannot take those of others.
func (c *Caller) MayTakeID(ctx context.Context, store string, tags []string, id string) (bool, error) {
	if c.grants.AllowID("append", store, tags, id) {
		return true, nil
	}
	return c.ask(ctx, "append", Events, store)
}

// MaySee reports whether a rule gives the caller any right on the name: such names are in the lists that it gets. Config.Ask is not asked for each of them.
func (c *Caller) MaySee(k Kind, name string) bool { return c.grants.AllowAny(k, name) }

// Granted reports whether a rule gives the caller a right on the name. Config.Ask is not asked: it is for lists.
func (c *Caller) Granted(v Verb, k Kind, name string) bool { return c.grants.Allow(v, k, name) }

// Asked reports whether the caller's rights have depended on Config.Ask.
func (c *Caller) Asked() bool { return c.asked.Load() }

func (c *Caller) ask(ctx context.Context, v Verb, k Kind, name string) (bool, error) {
	if c.answers == nil || !askable(name) {
		return false, nil
	}
	c.asked.Store(true) // before the answer is looked up: whoever drops answers looks at it afterwards
	return c.answers.get(ctx, c, object{v, k, name})
}

// Forget drops what Config.Ask has answered for the users of the change. Then the rights of their connections are to be checked again.
func (p *Policy) Forget(change Change) {
	a := p.answers
	if a == nil || !change.AllRights && len(change.Rights) == 0 {
		return
	}
	users := make(map[string]bool, len(change.Rights))
	for _, u := range change.Rights {
		users[u] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(func(user string) bool { return change.AllRights || users[user] })
}
