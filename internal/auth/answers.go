package auth

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// answerLife is how long an answer counts.
	answerLife = time.Minute
	// askTimeout bounds one question, with the wait for its turn.
	askTimeout = 2 * time.Second
	// maxAnswers bounds the answers for one caller, and maxAllAnswers those of all callers: about 25 MB.
	maxAnswers    = 1000
	maxAllAnswers = 100_000
	// maxAsking is how many questions of one caller are asked at a time, so that a caller who asks for many names does not hold up the others.
	maxAsking = 2
)

// Question asks whether a caller may do something that no rule grants it.
type Question struct {
	Claims []byte // JSON: those of the token; of an API key, and of an anonymous caller, sub and role
	Verb   Verb
	Kind   Kind
	Name   string // of an event store whatever the tags are
}

// answers asks Config.Ask, and keeps what it says. An error is not kept. Callers that need the same answer at the same time share one question
// (singleflight).
type answers struct {
	ask func(context.Context, Question) (bool, error)
	now func() time.Time

	mu      sync.Mutex
	callers map[callerID]*callerAnswers
	asking  map[string]*turns // of each user that has questions, whatever its tokens are
	total   int
	swept   time.Time
}

// callerID is a hash of a token. All requests with it share the answers.
type callerID [32]byte

type callerAnswers struct {
	user string
	all  map[object]*answer
}

// turns bounds how many questions of one user are asked at a time. It exists while the user has a question: so all of them have the same.
type turns struct {
	slots     chan struct{} // a semaphore of maxAsking
	questions int           // that are asked or wait
}

type object struct {
	verb Verb
	kind Kind
	name string
}

type answer struct {
	done  chan struct{} // closed when the fields below are there
	may   bool
	err   error
	until time.Time // zero while it is asked
}

func newAnswers(ask func(context.Context, Question) (bool, error)) *answers {
	return &answers{ask: ask, now: time.Now, callers: make(map[callerID]*callerAnswers), asking: make(map[string]*turns)}
}

// get returns the answer for a caller. It waits at most for askTimeout, or until ctx ends.
func (a *answers) get(ctx context.Context, c *Caller, o object) (bool, error) {
	got := a.find(c, o)
	select {
	case <-got.done:
		return got.may, got.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// find returns the answer that is kept or asked for, or asks.
func (a *answers) find(c *Caller, o object) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if now.Sub(a.swept) > answerLife {
		a.sweep(now)
	}
	of := a.callers[c.id]
	if of != nil {
		if got := of.all[o]; got != nil && (got.until.IsZero() || now.Before(got.until)) {
			return got
		}
	}
	switch {
	case of != nil && of.all[o] == nil && len(of.all) >= maxAnswers:
		a.drop(c.id, of)
		of = nil
	case a.total >= maxAllAnswers:
		a.sweep(now)
		if a.total >= maxAllAnswers {
			a.forget(func(string) bool { return true })
		}
		of = a.callers[c.id]
	}
	if of == nil {
		of = &callerAnswers{user: c.User, all: make(map[object]*answer)}
		a.callers[c.id] = of
	}
	if of.all[o] == nil {
		a.total++
	}
	got := &answer{done: make(chan struct{})}
	of.all[o] = got
	go a.run(of, o, got, a.join(c.User), Question{Claims: c.claims, Verb: o.verb, Kind: o.kind, Name: o.name})
	return got
}

// join counts a question of a user, until leave. a.mu is held.
func (a *answers) join(user string) *turns {
	t := a.asking[user]
	if t == nil {
		t = &turns{slots: make(chan struct{}, maxAsking)}
		a.asking[user] = t
	}
	t.questions++
	return t
}

// leave ends what join has begun. a.mu is held.
func (a *answers) leave(user string, t *turns) {
	if t.questions--; t.questions == 0 {
		delete(a.asking, user)
	}
}

// run asks one question. The answer is kept only if it still has its place: the rights may have changed meanwhile.
func (a *answers) run(of *callerAnswers, o object, got *answer, t *turns, q Question) {
	defer close(got.done)
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout) // several callers may wait for it
	defer cancel()
	select {
	case t.slots <- struct{}{}:
		got.may, got.err = a.ask(ctx, q)
		<-t.slots
	case <-ctx.Done():
		got.err = ctx.Err()
	}
	got.may = got.may && got.err == nil
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(of.user, t)
	switch {
	case of.all[o] != got:
	case got.err != nil:
		delete(of.all, o)
		a.total--
	default:
		got.until = a.now().Add(answerLife)
	}
}

// sweep removes answers that do not count any more. a.mu is held.
func (a *answers) sweep(now time.Time) {
	a.swept = now
	for id, of := range a.callers {
		for o, got := range of.all {
			if !got.until.IsZero() && !now.Before(got.until) {
				delete(of.all, o)
				a.total--
			}
		}
		if len(of.all) == 0 {
			delete(a.callers, id)
		}
	}
}

// forget drops the answers for some users. a.mu is held.
func (a *answers) forget(user func(string) bool) {
	for id, of := range a.callers {
		if user(of.user) {
			a.drop(id, of)
		}
	}
}

// drop drops the answers for a caller; questions that are being asked are not kept either. a.mu is held.
func (a *answers) drop(id callerID, of *callerAnswers) {
	a.total -= len(of.all)
	clear(of.all)
	delete(a.callers, id)
}

// askable reports whether a name can be a value of PostgreSQL's type text.
func askable(name string) bool { return utf8.ValidString(name) && strings.IndexByte(name, 0) < 0 }
