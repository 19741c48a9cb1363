package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
)

const (
	// reloadEvery is how often the files of keys and rules are read. A change counts when two reads find the same, so that a file is not used in the middle of
	// a replacement.
	reloadEvery = 5 * time.Second
	// maxReloaded is the largest of these files, in bytes.
	maxReloaded = 1 << 20
)

// reload reads the keys and rules again when their files have changed: the file of settings, secrets and public keys. While they cannot be used,
// the former ones stay.
type reload struct {
	p      *process
	cmd    *serveCmd
	db     *authDatabase
	policy *auth.Policy
	files  []string
	seen   [sha256.Size]byte // of what was used last, or could not be used
	last   [sha256.Size]byte // of what was read last
}

// newReload returns what Run needs, or nil if no file can change the policy.
func newReload(p *process, c *serveCmd, db *authDatabase, policy *auth.Policy) *reload {
	r := &reload{p: p, cmd: c, db: db, policy: policy}
	r.files = filesOf(p, &c.authFlags)
	if policy == nil || len(r.files) == 0 {
		return nil
	}
	r.seen = sumOf(r.files)
	return r
}

func filesOf(p *process, f *authFlags) []string {
	files := slices.Concat(f.AuthSecretFile, f.AuthPublicKeyFile)
	if p.settings.file != "" {
		files = append(files, p.settings.file)
	}
	return files
}

// sumOf is a hash of the contents of files. One that cannot be read counts as empty, as does one that is no file: a read of a pipe may wait for ever.
func sumOf(files []string) [sha256.Size]byte {
	all := sha256.New()
	for _, path := range files {
		var text []byte
		if regular(path) == nil {
			text, _ = os.ReadFile(path)
		}
		one := sha256.Sum256(text)
		all.Write(one[:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// regular returns why a file cannot be read again.
func regular(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxReloaded:
		return fmt.Errorf("%s has more than %d bytes", path, maxReloaded)
	}
	return nil
}

// run looks at the files until ctx ends.
func (r *reload) run(ctx context.Context, edge *gateway.Server) {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.look(edge)
		case <-ctx.Done():
			return
		}
	}
}

func (r *reload) look(edge *gateway.Server) {
	sum := sumOf(r.files)
	if steady := sum == r.last; sum == r.seen || !steady {
		r.last = sum
		return
	}
	r.seen = sum
	flags, err := r.read()
	if err != nil {
		r.p.log.Warn("the new keys and rules cannot be used, and the former ones stay until the files change", "error", err)
		return
	}
	if files := filesOf(r.p, flags); !slices.Equal(files, r.files) { // read again: they may have changed since
		r.files, r.seen = files, [sha256.Size]byte{}
	}
	edge.RulesChanged()
	r.p.log.Info("the keys and rules were read again", "rules", len(flags.Rule), "keys", len(flags.AuthSecretFile)+len(flags.AuthPublicKeyFile))
}

// read gives the policy what the command line, the environment and the files say now.
func (r *reload) read() (*authFlags, error) {
	for _, path := range r.files {
		if err := regular(path); err != nil {
			return nil, err
		}
	}
	settings := newSettings(r.p.Getenv)
	var cmds commands
	parser, err := newParser(r.p.Env, &cmds, settings)
	if err != nil {
		return nil, err
	}
	_, err = parser.Parse(quickened(longFlags(helpWord(r.p.Args))))
	if err = errors.Join(settings.err, err); err != nil {
		return nil, err
	}
	flags := &cmds.Serve.authFlags
	if flags.AuthJWKSURL != r.cmd.AuthJWKSURL || flags.AuthSQL != r.cmd.AuthSQL || flags.AuthAPIKeys != r.cmd.AuthAPIKeys {
		return nil, errors.New("auth-jwks-url, auth-sql and auth-api-keys count at the start alone: start the server again")
	}
	flags.rulesFrom = settings.place("rule")
	cfg, err := flags.policyConfig(r.p.log, r.db)
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, errors.New("there is no key any more, and a running server does not become open: start it again")
	}
	cfg.KeySet = r.cmd.keySet
	return flags, r.policy.Reload(*cfg)
}
