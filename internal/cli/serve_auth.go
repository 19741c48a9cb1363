package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/access"
	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
)

// authFlags say who callers are and what they may do. Without a key the server is in open mode: everybody may do everything.
type authFlags struct {
	AuthAudience      string       `default:"tidewire" placeholder:"NAME" help:"What the claim aud of a token has to be, or to contain. Default: tidewire."`
	AuthIssuer        string       `placeholder:"NAME" help:"What the claim iss of a token has to be. Required with --auth-jwks-url. Default: any."`
	AuthJWKSURL       string       `name:"auth-jwks-url" placeholder:"URL" help:"Address of the public keys of the issuer (JWKS). Tokens are required then."`
	AuthPublicKeyFile []string     `placeholder:"FILE" help:"File with public keys in PEM (RSA, P-256 or Ed25519) that sign tokens. Tokens are required then. May be repeated."`
	AuthSecretFile    []string     `placeholder:"FILE" help:"File with a secret of at least 32 bytes that signs tokens (HS256). Tokens are required then. May be repeated, to change the secret: the former one stays until its tokens have ended."`
	AuthRoleClaim     string       `default:"role" placeholder:"PATH" help:"Claim that names the role of a caller, with dots between the names of its path. A token without it has the role user. Default: role."`
	AuthLeeway        seconds      `default:"30s" help:"How far the clocks of the issuer and of this server may differ."`
	AuthGrace         seconds      `default:"25s" help:"How long a connection stays open after its token has ended. It can only receive and settle then."`
	AuthAnonymous     bool         `help:"Let callers without a token in, as the role anonymous."`
	AuthAPIKeys       bool         `name:"auth-api-keys" help:"Accept API keys, which tidewire keys create makes, without keys of tokens. Tokens or API keys are required then. With keys of tokens, API keys are accepted too wherever a database is open."`
	AuthSQL           string       `name:"auth-sql" placeholder:"SCHEMA.NAME" help:"SQL function that is asked when no rule grants a right: (claims jsonb, verb text, kind text, name text) RETURNS boolean. An answer counts for a minute. docs/how-to/secure.md has an example."`
	Rule              []string     `sep:"none" placeholder:"'ROLE: RULE'" help:"Grant a right to a role, for example 'user: join,chat room:public-*'. The role * is every caller with a token. May be repeated; in the environment, one line for each. Without rules nobody has a right. docs/how-to/secure.md lists the verbs."`
	keySet            *auth.KeySet // of AuthJWKSURL
	rulesFrom         string       // where Rule was written
	Open              bool         `help:"Serve other machines without authentication: every client that can connect can read, write and drop everything."`
}

// closed reports whether tokens are required.
func (f *authFlags) closed() bool {
	return f.AuthAPIKeys || f.AuthJWKSURL != "" || len(f.AuthPublicKeyFile)+len(f.AuthSecretFile) > 0
}

// authDatabase is what authentication needs of the database. It is made before the database is open, so that wrong settings end the start first.
type authDatabase struct {
	store    access.Store
	function access.Function
}

// policy returns the policy that the flags ask for, or nil in open mode. Without a database db is nil.
func (f *authFlags) policy(log *slog.Logger, db *authDatabase) (*auth.Policy, error) {
	cfg, err := f.policyConfig(log, db)
	if cfg == nil || err != nil {
		return nil, err
	}
	if f.AuthJWKSURL != "" {
		if cfg.KeySet, err = auth.NewKeySet(f.AuthJWKSURL, log); err != nil {
			return nil, exit(ExitUsage, "%w", err)
		}
		f.keySet = cfg.KeySet
	}
	policy, err := auth.NewPolicy(*cfg)
	if err != nil {
		return nil, exit(ExitUsage, "%w", err)
	}
	if cfg.KeySet != nil { // all settings are right
		cfg.KeySet.Prepare()
	}
	return policy, nil
}

// policyConfig returns what the flags say, but for the JWKS, or nil in open mode.
func (f *authFlags) policyConfig(log *slog.Logger, db *authDatabase) (*auth.Config, error) {
	if !f.closed() {
		if len(f.Rule) > 0 || f.AuthAnonymous || f.AuthIssuer != "" || f.AuthSQL != "" {
			return nil, exit(ExitUsage, "--rule, --auth-sql, --auth-issuer and --auth-anonymous need tokens: give --auth-secret-file, --auth-public-key-file, --auth-jwks-url or --auth-api-keys")
		}
		return nil, nil
	}
	if db == nil && (f.AuthAPIKeys || f.AuthSQL != "") {
		return nil, exit(ExitUsage, "--auth-api-keys and --auth-sql need a database, and what this server serves needs none: leave out --only, or these flags")
	}
	if f.Open {
		return nil, exit(ExitUsage, "--open serves without authentication: leave it out, or leave out the keys of tokens")
	}
	cfg := &auth.Config{
		Token:     auth.TokenConfig{Issuer: f.AuthIssuer, Audience: f.AuthAudience, RoleClaim: f.AuthRoleClaim, Leeway: time.Duration(f.AuthLeeway)},
		Anonymous: f.AuthAnonymous,
	}
	var err error
	if cfg.Keys, err = f.keys(log); err == nil && f.AuthSQL != "" {
		err = access.CheckFunctionName(f.AuthSQL)
	}
	if err != nil {
		return nil, exit(ExitUsage, "%w", err)
	}
	if db != nil {
		cfg.Access = db.store.Snapshot
		if f.AuthSQL != "" {
			cfg.Ask = db.function.Ask
		}
	}
	cfg.RulesFrom = f.rulesFrom
	if cfg.Rules, err = parseRules(f.Rule); err != nil {
		return nil, exit(ExitUsage, "--rule: %w", err)
	}
	for _, r := range cfg.Rules {
		if r.Role == auth.Anonymous && !f.AuthAnonymous {
			log.Warn("a rule for callers without a token has no effect without --auth-anonymous", "rule", r.Allow[0].String())
		}
	}
	if len(cfg.Rules) == 0 && f.AuthSQL == "" && !f.AuthAPIKeys {
		log.Warn("there is no --rule: only the rights in tokens count")
	}
	return cfg, nil
}

// warnOfReaders warns if other users of the machine can read a file with a secret.
func warnOfReaders(log *slog.Logger, path string) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("other users of this machine can read the secret: chmod 600 "+path, "mode", info.Mode().Perm())
	}
}

func (f *authFlags) keys(log *slog.Logger) ([]auth.Key, error) {
	var keys []auth.Key
	for _, path := range f.AuthSecretFile {
		k, err := auth.ReadSecretFile(path)
		if err != nil {
			return nil, fmt.Errorf("--auth-secret-file: %w", err)
		}
		warnOfReaders(log, path)
		keys = append(keys, k)
	}
	for _, path := range f.AuthPublicKeyFile {
		more, err := auth.ReadPublicKeyFile(path)
		if err != nil {
			return nil, fmt.Errorf("--auth-public-key-file: %w", err)
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

// parseRules parses "ROLE: RULE", one or several lines each.
func parseRules(texts []string) ([]auth.RoleRule, error) {
	var rules []auth.RoleRule
	for line := range strings.Lines(strings.Join(texts, "\n")) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		role, text, ok := strings.Cut(line, ": ")
		if role = strings.TrimSpace(role); !ok || role == "" {
			return nil, fmt.Errorf("%q: want ROLE: RULE, with a space after the colon, such as 'user: read stream:news'", line)
		}
		if strings.Contains(text, ": ") {
			return nil, fmt.Errorf("%q: these are several rules: write each as a value of its own; in the environment, on a line of its own", line)
		}
		rule, err := auth.ParseRule(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		rules = append(rules, auth.RoleRule{Role: role, Allow: []auth.Rule{rule}})
	}
	return rules, nil
}

// auth returns the authentication of a server. A server in open mode serves its own machine alone, unless --open says otherwise. Without a database
// db is nil.
func (c *serveCmd) auth(p *process, loopback bool, db *authDatabase) (gateway.AuthConfig, error) {
	c.rulesFrom = p.settings.place("rule")
	policy, err := c.policy(p.log, db)
	if err != nil {
		return gateway.AuthConfig{}, err
	}
	switch {
	case policy != nil || loopback:
	case !c.Open:
		return gateway.AuthConfig{}, exit(ExitUsage, "%w", errOpen)
	default:
		p.log.Warn("serving without authentication: every client that can connect can read, write and drop everything")
	}
	cfg := gateway.AuthConfig{Policy: policy, Grace: time.Duration(c.AuthGrace)}
	if policy != nil && db != nil {
		cfg.Administration = &db.store
	}
	return cfg, nil
}

// open opens what authentication needs of the database. The function has a pool of its own, so that it holds up nothing else. stop ends it.
func (d *authDatabase) open(c *serveCmd, p *process, db *database, pool *pgxpool.Pool) (stop func() error, err error) {
	if !c.closed() {
		return func() error { return nil }, nil
	}
	if err := d.store.Open(p.ctx, pool, p.log); err != nil {
		return nil, explainDatabase(err)
	}
	own := pool
	if c.AuthSQL != "" {
		if own, err = db.connect(p.ctx, access.FunctionConnections, p.log); err != nil {
			return nil, err
		}
		if err := d.function.Open(p.ctx, own, p.log, c.AuthSQL); err != nil {
			own.Close()
			return nil, exit(ExitDatabase, "--auth-sql: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	var running sync.WaitGroup
	running.Go(func() { d.store.Run(ctx) })
	return func() error {
		cancel()
		running.Wait()
		if own == pool {
			return nil
		}
		return c.closePool(own)
	}, nil
}

var errOpen = errors.New("other machines could read, write and drop everything, because there is no authentication. " +
	"Require tokens, with --auth-secret-file FILE (or --auth-public-key-file, --auth-jwks-url, or --auth-api-keys for API keys alone) and --rule 'user: read stream:news'; " +
	"or listen on localhost; or give --open")
