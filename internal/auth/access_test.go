package auth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAPIKey_Form: keys have one form, which scanners for secrets can find, and are made only of good rules.
func TestAPIKey_Form(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^tw_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}$`)
	seen := make(map[string]bool)
	for range 1000 {
		key, text, err := NewAPIKey("shop", []string{"read stream:orders"}, time.Time{})
		if err != nil || !form.MatchString(text) || seen[text] || text[3:11] != key.ID {
			t.Fatalf("%q, %v", text, err)
		}
		seen[text] = true
	}
	for name, allow := range map[string][]string{"": {"read stream:a"}, "a\x00": {"read stream:a"}, "key:a": {"read stream:a"}, "none": nil, "placeholder": {"read stream:{sub}"}, "wrong": {"reed stream:a"}} {
		if _, _, err := NewAPIKey(name, allow, time.Time{}); err == nil {
			t.Errorf("%q %v: no error", name, allow)
		}
	}
}

// TestPolicy_KeysAlone: API keys need no keys of tokens, and then no token is taken.
func TestPolicy_KeysAlone(t *testing.T) {
	t.Parallel()
	key, text, err := NewAPIKey("shop", []string{"read stream:orders"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	p := mustPolicy(t, Config{
		Token: config, Access: func() *Snapshot { return NewSnapshot([]APIKey{key}, nil, nil) }, Rules: []RoleRule{{AnyRole, mustRules(t, "join room:*")}, {"key", mustRules(t, "join room:*")}},
	})
	c, err := p.Authenticate(t.Context(), text)
	if err != nil || c.User != "key:shop" || c.Role != "key" || c.Kind != ByKey || !c.Expires.IsZero() || !yes(c.May(t.Context(), "read", Stream, "orders")) || yes(c.May(t.Context(), "join", Room, "a")) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := p.Authenticate(t.Context(), sign(t, secret, hs256, good())); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("a token: %v", err)
	}
}

// asking is a policy whose questions a test answers.
func asking(t *testing.T, ask func(context.Context, Question) (bool, error)) (*Policy, *Caller) {
	t.Helper()
	p := mustPolicy(t, Config{Token: config, Keys: []Key{mustKey(t)(NewSecret("", secret))}, Ask: ask})
	c, err := p.Authenticate(t.Context(), sign(t, secret, hs256, good("role", "worker")))
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

// TestAsk_Once: one question for each object, also for callers at the same time, until a minute has passed. Errors are not kept.
func TestAsk_Once(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var clock atomic.Int64
	fails := atomic.Bool{}
	let := make(chan struct{})
	p, c := asking(t, func(_ context.Context, q Question) (bool, error) {
		asked.Add(1)
		<-let
		if fails.Load() {
			return true, errors.New("wrong")
		}
		return q.Name == "yes", nil
	})
	p.answers.now = func() time.Time { return time.Unix(clock.Load(), 0) }
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			if may, err := c.May(t.Context(), "read", Stream, "yes"); !may || err != nil {
				t.Errorf("%v, %v", may, err)
			}
		})
	}
	close(let)
	callers.Wait()
	if !yes(c.May(t.Context(), "read", Stream, "yes")) || yes(c.May(t.Context(), "read", Stream, "no")) || asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
	clock.Store(60)
	if !yes(c.May(t.Context(), "read", Stream, "yes")) || asked.Load() != 3 {
		t.Errorf("after a minute: asked %d times", asked.Load())
	}
	p.Forget(Change{Rights: []string{"somebody"}})
	if !yes(c.May(t.Context(), "read", Stream, "yes")) || asked.Load() != 3 {
		t.Errorf("another user's rights have changed: asked %d times", asked.Load())
	}
	fails.Store(true)
	p.Forget(Change{Rights: []string{c.User}})
	for range 2 {
		if may, err := c.May(t.Context(), "read", Stream, "yes"); may || err == nil {
			t.Errorf("after an error: %v, %v", may, err)
		}
	}
	if asked.Load() != 5 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// TestAsk_ForgottenInFlight: an answer to a question that was asked before the rights changed is not kept.
func TestAsk_ForgottenInFlight(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}, 10), make(chan bool)
	p, c := asking(t, func(context.Context, Question) (bool, error) {
		begun <- struct{}{}
		return <-let, nil
	})
	got := make(chan bool)
	go func() { got <- yes(c.May(t.Context(), "read", Stream, "a")) }()
	<-begun
	p.Forget(Change{AllRights: true})
	let <- true
	if !<-got {
		t.Error("the question of before has another answer")
	}
	go func() { got <- yes(c.May(t.Context(), "read", Stream, "a")) }()
	<-begun // asks again
	let <- false
	if <-got {
		t.Error("the answer of before was kept")
	}
}

// TestAsk_Bounds: a caller has at most 1,000 answers, and all callers together 100,000.
func TestAsk_Bounds(t *testing.T) {
	t.Parallel()
	p, c := asking(t, func(context.Context, Question) (bool, error) { return true, nil })
	for i := range 3*maxAnswers + 7 {
		if !yes(c.May(t.Context(), "read", Stream, fmt.Sprint(i))) {
			t.Fatal("no answer")
		}
	}
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	if n := len(p.answers.callers[c.id].all); n != p.answers.total || n > maxAnswers {
		t.Errorf("%d answers of %d", n, p.answers.total)
	}
	p.answers.total = maxAllAnswers
	p.answers.mu.Unlock()
	may := yes(c.May(t.Context(), "read", Stream, "one more"))
	p.answers.mu.Lock()
	if n := len(p.answers.callers[c.id].all); !may || n != 1 {
		t.Errorf("%v, %d answers", may, n)
	}
}

// TestAsk_TurnsOfAUser: at most two questions of one user are asked at a time, whatever its tokens are and however long ago it has asked.
func TestAsk_TurnsOfAUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var blocked atomic.Bool
		var at atomic.Int64
		let := make(chan struct{})
		p, first := asking(t, func(context.Context, Question) (bool, error) {
			if blocked.Load() {
				at.Add(1)
				<-let
			}
			return true, nil
		})
		second, err := p.Authenticate(t.Context(), sign(t, secret, hs256, good("jti", "2")))
		if err != nil {
			t.Fatal(err)
		}
		first.May(t.Context(), "read", Stream, "1")
		time.Sleep(answerLife - time.Second) // of a clock that goes on when all goroutines wait
		first.May(t.Context(), "read", Stream, "2")
		time.Sleep(2 * time.Second)
		second.May(t.Context(), "read", Stream, "3") // sweeps: the first token has an answer that counts, and the user no question
		blocked.Store(true)
		var all sync.WaitGroup
		for _, c := range []*Caller{first, second} {
			for n := range 4 {
				all.Go(func() { c.May(t.Context(), "read", Stream, fmt.Sprint("slow ", n)) })
			}
		}
		synctest.Wait()
		if n := at.Load(); n != maxAsking {
			t.Errorf("%d questions at a time, want %d", n, maxAsking)
		}
		close(let)
		all.Wait()
		synctest.Wait()
		if n := len(p.answers.asking); n > 0 {
			t.Errorf("%d users have turns and no question", n)
		}
	})
}

// TestSnapshot_Revokes: by jti, and by user and time.
func TestSnapshot_Revokes(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	s := NewSnapshot(nil, map[string]struct{}{"j": {}, "": {}}, map[string]time.Time{"ann": at})
	for _, c := range []struct {
		jti, user string
		issued    time.Time
		want      bool
	}{
		{"j", "bob", at, true}, {"", "bob", at, false}, {"i", "bob", at, false}, {"i", "ann", at.Add(-1), true}, {"", "ann", time.Time{}, true},
		{"i", "ann", at.Add(29 * time.Second), true}, {"i", "ann", at.Add(30 * time.Second), false}, // the issuer's clock may be ahead
	} {
		if got := s.revokes(c.jti, c.user, c.issued, 30*time.Second); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
