package cli

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidewire/tidewire/internal/access"
	"github.com/tidewire/tidewire/internal/auth"
)

// keysCmd has the commands for API keys.
type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Create an API key, and print it. It is shown once. To renew a key, create another one of the same name, and revoke the former one when nobody uses it any more."`
	List   keysListCmd   `cmd:"" help:"List the API keys, without their secrets."`
	Revoke keysRevokeCmd `cmd:"" help:"Revoke an API key. Servers close its connections."`
}

type keysCreateCmd struct {
	Name    string   `arg:"" help:"Name of the key. Callers with the key are the user key:NAME. Several keys may have the same name."`
	Allow   []string `required:"" sep:"none" placeholder:"'RULE'" help:"Right of the key, for example 'read stream:orders'. May be repeated. A key has only these rights; rules of roles do not hold for it. docs/how-to/secure.md lists the verbs."`
	Expires lifetime `placeholder:"TIME" help:"Time after which the key ends, such as 90d or 12h. Default: never."`
	databaseFlags
}

// Run is called by kong.
func (c *keysCreateCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		id, text, err := access.CreateKey(p.ctx, pool, p.log, operator(), c.Name, c.Allow, time.Duration(c.Expires))
		if err != nil {
			return explainKeys(err)
		}
		fmt.Fprintf(p.Err, "The key with the id %s follows. Store it now: it is not shown again.\n", id)
		_, err = fmt.Fprintln(p.Out, text)
		return err
	})
}

type keysListCmd struct{ databaseFlags }

// Run is called by kong.
func (c *keysListCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		keys, err := access.ListKeys(p.ctx, pool)
		if err != nil {
			return explainDatabase(err)
		}
		t := plainTable("id", "name", "allow", "created", "expires", "state")
		for _, k := range keys {
			t.AppendRow(table.Row{k.ID, k.Name, strings.Join(k.Allow, "; "), day(&k.Created), day(k.Expires), stateOf(k)})
		}
		fmt.Fprintln(p.Out, t.Render())
		return nil
	})
}

func day(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func stateOf(k auth.KeyInfo) string {
	switch {
	case k.Revoked != nil:
		return "revoked"
	case k.Expired:
		return "expired"
	}
	return "active"
}

type keysRevokeCmd struct {
	ID string `arg:"" name:"id" help:"Id of the key: the part after tw_, which tidewire keys list shows."`
	databaseFlags
}

// Run is called by kong.
func (c *keysRevokeCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		return explainKeys(access.RevokeKey(p.ctx, pool, p.log, operator(), c.ID))
	})
}

// operator names the user of the operating system in the audit log.
func operator() string {
	if u, err := user.Current(); err == nil {
		return "cli:" + u.Username
	}
	return "cli"
}

// explainKeys adds to an error of package access what to do about it.
func explainKeys(err error) error {
	invalid, isInvalid := errors.AsType[*access.InvalidError](err)
	switch {
	case isInvalid:
		return exit(ExitUsage, "%w", invalid)
	case errors.Is(err, access.ErrNoKey):
		return exit(ExitFailure, "%w; tidewire keys list shows what there is", err)
	case errors.Is(err, auth.ErrTooMany):
		return exit(ExitFailure, "%w; revoke keys that nobody uses", err)
	}
	return explainDatabase(err)
}

// lifetime is a duration flag that also accepts days, "90d".
type lifetime time.Duration

// longestLife is the longest lifetime.
const longestLife = 100 * 365 * 24 * time.Hour

func parseLifetime(text string) (lifetime, error) {
	d, err := time.ParseDuration(text)
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 || d > longestLife {
		return 0, fmt.Errorf("invalid time %q: give one such as 90d, 12h or 30m, up to 36500d", text)
	}
	return lifetime(d), nil
}
