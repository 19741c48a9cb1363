package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestKeys_Commands: a key is shown once, alone on the standard output; a running server takes it until it is revoked.
func TestKeys_Commands(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	p := serve(t, "--auth-api-keys", "--database-url", s.url)
	url := "http://" + p.Addr + "/v1/streams"
	if got := getAs(t, url, ""); got != 401 {
		t.Errorf("without a key: %d", got)
	}
	out, errOut := s.in("", cli.ExitOK, "keys", "create", "shop", "--allow", "read stream:orders,archive", "--allow", "publish stream:orders", "--expires", "90d")
	key, rest, _ := strings.Cut(out, "\n")
	if !strings.HasPrefix(key, "tw_") || len(key) != 55 || rest != "" || !strings.Contains(errOut, key[3:11]) || strings.Contains(errOut, key[12:]) {
		t.Fatalf("%q, %q", out, errOut)
	}
	testkit.Eventually(t, "the key is taken", func() bool { return getAs(t, url, key) == 200 })
	list := s.run("keys", "list")
	if !strings.Contains(list, "read stream:orders,archive; publish stream:orders") || !strings.Contains(list, "active") || strings.Contains(list, key[12:]) {
		t.Errorf("%s", list)
	}
	s.run("keys", "revoke", key[3:11])
	testkit.Eventually(t, "the key is revoked", func() bool { return getAs(t, url, key) == 401 })
	if list := s.run("keys", "list"); !strings.Contains(list, "revoked") {
		t.Errorf("%s", list)
	}
	if _, errOut := s.in("", cli.ExitFailure, "keys", "revoke", key[3:11]); !strings.Contains(errOut, "tidewire keys list") {
		t.Errorf("%s", errOut)
	}
	for says, args := range map[string][]string{
		"no verb of stream": {"--allow", "reed stream:a"}, "placeholders": {"--allow", "read stream:{sub}"}, "invalid time": {"--allow", "read stream:a", "--expires", "soon"}, "--allow": {},
	} {
		if _, errOut := s.in("", cli.ExitUsage, append([]string{"keys", "create", "shop"}, args...)...); !strings.Contains(errOut, says) {
			t.Errorf("%v: %s", args, errOut)
		}
	}
}

// TestServe_AuthSQL: the function is checked at the start, and is asked when no rule grants a right.
func TestServe_AuthSQL(t *testing.T) {
	t.Parallel()
	url := migrated(t).URL
	runSQL(t, url, `CREATE SCHEMA app; CREATE FUNCTION app.may(claims jsonb, verb text, kind text, name text) RETURNS boolean LANGUAGE sql AS $$ SELECT verb = 'metrics' $$`)
	secret := secretFile(t, serverSecret)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitDatabase, "CREATE FUNCTION app.other(claims jsonb, verb text, kind text, name text) RETURNS boolean", []string{"--auth-secret-file", secret, "--auth-sql", "app.other"}},
		{cli.ExitUsage, "want SCHEMA.NAME", []string{"--auth-secret-file", secret, "--auth-sql", "other"}},
	} {
		code, _, errOut := run(t, nil, append([]string{"serve", "--port", "0", "--database-url", url}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%v: %d %s", c.args, code, errOut)
		}
	}
	p := serve(t, "--auth-anonymous", "--auth-secret-file", secret, "--auth-sql", "app.may", "--database-url", url)
	if got := getAs(t, "http://"+p.Addr+"/metrics", ""); got != 200 {
		t.Errorf("what the function allows: %d", got)
	}
	if got := getAs(t, "http://"+p.Addr+"/v1/queues/a", ""); got != 403 {
		t.Errorf("what it does not: %d", got)
	}
}
