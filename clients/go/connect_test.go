package tidewire

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAnEmptyTokenIsAFailedAttempt(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	var asked atomic.Int32
	failures := make(chan error, 16)
	c := f.open(t, Options{
		Token: func(context.Context, bool) (string, error) {
			if asked.Add(1) == 1 {
				return "", nil
			}
			return "good", nil
		},
		OnState: func(s State) {
			if s.Phase == Waiting {
				failures <- s.Err
			}
		},
	})
	begin(func() (Published, error) { return c.Stream("s").Publish(ctx, nil) })
	p := f.accept(t)
	if token := p.header.Get("Authorization"); token != "Bearer good" {
		t.Errorf("it connects with %q", token)
	}
	if err := <-failures; err == nil || !strings.Contains(err.Error(), "Options.Token") {
		t.Errorf("got %v", err)
	}
}

func TestATimeoutSaysWhyThereIsNoConnection(t *testing.T) {
	f := newFake(t)
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	for name, test := range map[string]struct {
		address, token string
		says           []string
	}{
		"port":  {"ws://127.0.0.1:1/ws?key=secret", "", []string{"127.0.0.1:1", "refused"}},
		"host":  {"ws://nowhere.invalid/ws", "", []string{"nowhere.invalid"}},
		"path":  {"ws" + strings.TrimPrefix(elsewhere.URL, "http") + "/nothing", "", []string{"/nothing", "404"}},
		"token": {"ws" + strings.TrimPrefix(f.URL, "http") + "/ws", "bad", []string{"401", "the token is not valid"}},
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 64)
			c, err := Open(test.address, Options{APIKey: test.token, OnState: func(s State) {
				if s.Phase == Waiting {
					failed <- s.Err
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			pending := c.Stream("s").PublishAsync(context.Background(), nil)
			<-failed
			c.expire(pending.r) // its time is over after the first attempt
			_, got := pending.Wait(testContext(t))
			checkTimeout(t, got, test.says)
			c.opts.Timeout = time.Millisecond
			_, got = c.Stream("s").Subscribe(context.Background())
			checkTimeout(t, got, test.says)
		})
	}
}

func checkTimeout(t *testing.T, err error, says []string) {
	t.Helper()
	if !errors.Is(err, ErrTimeout) || errors.Unwrap(err) == nil || strings.Contains(err.Error(), "secret") {
		t.Fatalf("got %v, caused by %v", err, errors.Unwrap(err))
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) || !strings.Contains(errors.Unwrap(err).Error(), text) {
			t.Errorf("got %q, want it to say %q", err, text)
		}
	}
}
