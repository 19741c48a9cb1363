package gateway_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
)

// TestOwnRights: a caller learns which rights it has, and none of the missing ones is recorded as a denial.
func TestOwnRights(t *testing.T) {
	t.Parallel()
	log := &lines{}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Audit = slog.New(slog.NewJSONHandler(log, nil)) })
	token := tokenOf(t, "ann", time.Hour, "read stream:orders-*", "query,append events:default#tenant:7", "metrics server:*")
	for _, q := range []struct{ right, allowed string }{
		{`{"verb":"read","kind":"stream","name":"orders-7"}`, "true"},
		{`{"verb":"read","kind":"stream","name":"orders-*"}`, "true"}, // a name, and no pattern
		{`{"verb":"read","kind":"stream","name":"secret"}`, "false"},
		{`{"verb":"publish","kind":"stream","name":"orders-7"}`, "false"},
		{`{"verb":"query","kind":"events","name":"default"}`, "false"},
		{`{"verb":"query","kind":"events","name":"default","tags":["tenant:7","x"]}`, "true"},
		{`{"verb":"append","kind":"events","name":"default","tags":["tenant:8"]}`, "false"},
		{`{"verb":"metrics","kind":"server"}`, "true"},
		{`{"verb":"connections","kind":"server"}`, "false"},
	} {
		status, text := client{t, c.addr}.do("POST", "/v1/rights", `{"rights":[`+q.right+`]}`, "Authorization", "Bearer "+token)
		if want := fmt.Sprintf(`{"closed":true,"user":"ann","role":"user","allowed":[%s]}`, q.allowed); status != 200 || strings.TrimSpace(text) != want {
			t.Errorf("%s: %d %s, want %s", q.right, status, text, want)
		}
	}
	if denied := log.all(t); len(denied) > 0 {
		t.Errorf("recorded: %v", denied)
	}
	for body, want := range map[string]string{
		`{}`: "400 malformed", `{"rights":[]}`: "400 malformed",
		`{"rights":[` + strings.Repeat(`{"verb":"read","kind":"stream","name":"a"},`, 100) + `{"verb":"read","kind":"stream","name":"a"}]}`: "400 malformed",
		`{"rights":[{"verb":"read","kind":"table","name":"a"}]}`:                                                                            "400 malformed",
		`{"rights":[{"verb":"drop","kind":"stream","name":"a"}]}`:                                                                           "400 malformed",
		`{"rights":[{"verb":"read","kind":"stream","name":"` + strings.Repeat("n", 129) + `"}]}`:                                            "400 malformed",
		`{"rights":[{"verb":"read","kind":"stream","name":"a","tags":["t"]}]}`:                                                              "400 malformed",
		`{"rights":[{"verb":"admin","kind":"events","name":"a","tags":["t"]}]}`:                                                             "400 malformed",
		`{"right":[]}`: "400 unknown_field",
	} {
		if got := c.status("POST", "/v1/rights", body, token); got != want {
			t.Errorf("%.80s: %s, want %s", body, got, want)
		}
	}
	if got := c.status("POST", "/v1/rights", `{"rights":[{"verb":"metrics","kind":"server"}]}`, ""); got != "401 unauthenticated" {
		t.Errorf("without a token: %s", got)
	}
}
