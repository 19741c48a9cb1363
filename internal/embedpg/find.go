package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// binaries is a directory with a working initdb and postgres.
type binaries struct {
	dir          string
	major, minor int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// findBinaries chooses the binaries for a data directory of major dataMajor,
// 0 for a new one.
func findBinaries(ctx context.Context, cfg Config, as account, dataMajor int) (binaries, error) {
	want := cfg.Version
	if dataMajor != 0 {
		if want != 0 && want != dataMajor {
			return binaries{}, fmt.Errorf("%w: %s has data of PostgreSQL %d, but version %d was requested: leave the version out, choose another data directory, or move the data with pg_upgrade or pg_dump", ErrOtherMajor, cfg.DataDir, dataMajor, want)
		}
		want = dataMajor
	}
	if cfg.BinDir != "" {
		return explicitBinaries(ctx, cfg, as, want, dataMajor)
	}
	var others []string
	if cfg.Binaries != Fetch {
		found := installed(ctx, cfg, as)
		for _, b := range found { // newest first
			if want == 0 || b.major == want {
				return b, nil
			}
			others = append(others, strconv.Itoa(b.major))
		}
	}
	if cfg.Binaries == System {
		return binaries{}, missing(cfg, want, dataMajor, others)
	}
	if want == 0 {
		want = defaultMajor
	}
	f, err := newFetcher(cfg, as, want)
	if err != nil && dataMajor != 0 {
		others = append(others, fmt.Sprintf("%d to %d to fetch", minMajor, defaultMajor))
		return binaries{}, missing(cfg, want, dataMajor, others)
	}
	if err != nil {
		return binaries{}, err
	}
	b, err := f.fetch(ctx)
	if err != nil && dataMajor != 0 {
		return binaries{}, fmt.Errorf("%s needs PostgreSQL %d: %w", cfg.DataDir, dataMajor, err)
	}
	return b, err
}

func explicitBinaries(ctx context.Context, cfg Config, as account, want, dataMajor int) (binaries, error) {
	b, err := probe(ctx, cfg, as, cfg.BinDir)
	if err != nil {
		return binaries{}, fmt.Errorf("%w: %w", ErrNoBinaries, err)
	}
	if b.major < minMajor {
		return binaries{}, fmt.Errorf("%w: %s has PostgreSQL %d, but Tidewire needs %d or newer", ErrNoBinaries, cfg.BinDir, b.major, minMajor)
	}
	if want != 0 && b.major != want {
		return binaries{}, missing(cfg, want, dataMajor, []string{strconv.Itoa(b.major)})
	}
	return b, nil
}

func missing(cfg Config, want, dataMajor int, others []string) error {
	there := "none"
	if len(others) > 0 {
		there = strings.Join(slices.Compact(others), ", ")
	}
	if dataMajor != 0 {
		return fmt.Errorf("%w: %s has data of PostgreSQL %d, available: %s: install PostgreSQL %d, choose another data directory, or move the data with pg_upgrade or pg_dump; nothing was changed", ErrOtherMajor, cfg.DataDir, dataMajor, there, dataMajor)
	}
	if want != 0 {
		return fmt.Errorf("%w: PostgreSQL %d was requested, available: %s: install it, or give the URL of a running one", ErrNoBinaries, want, there)
	}
	return fmt.Errorf("%w: install PostgreSQL %d or newer (for example: apt install postgresql, brew install postgresql), let Tidewire fetch one, or give the URL of a running one", ErrNoBinaries, minMajor)
}

// installed returns all PostgreSQL installations of the machine, newest first; of
// two with the same version the one in PATH comes first.
func installed(ctx context.Context, cfg Config, as account) []binaries {
	dirs := filepath.SplitList(cfg.Getenv("PATH"))
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian
		"/usr/pgsql-*/bin",          // PGDG on Red Hat
		"/usr/lib/postgresql*/bin",  // SUSE, Gentoo
		"/usr/libexec/postgresql*",  // Alpine
		"/usr/local/pgsql/bin",      // from source
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/opt/local/lib/postgresql*/bin", // MacPorts
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/Library/PostgreSQL/*/bin", // EnterpriseDB
		"/usr/bin",
		"/usr/local/bin",
	} {
		found, _ := filepath.Glob(pattern) // fails on a bad pattern only
		dirs = append(dirs, found...)
	}
	seen := map[string]bool{}
	var all []binaries
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue // with "." in PATH, a file in the current directory would run
		}
		// PATH often has a link; initdb looks for its share directory beside
		// the real file.
		real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil || seen[filepath.Dir(real)] {
			continue
		}
		seen[filepath.Dir(real)] = true
		if b, err := probe(ctx, cfg, as, filepath.Dir(real)); err == nil && b.major >= minMajor {
			all = append(all, b)
		}
	}
	slices.SortStableFunc(all, func(a, b binaries) int {
		if a.major != b.major {
			return b.major - a.major
		}
		return b.minor - a.minor
	})
	return all
}

// probe asks a postgres for its version. It runs as the account that will run the
// server, so that binaries which this account may not execute are not chosen.
func probe(ctx context.Context, cfg Config, as account, dir string) (binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: dir}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(b.path(name)); err != nil {
			return binaries{}, err
		}
	}
	if err := as.canEnter(dir); err != nil {
		return binaries{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	version := func() (string, error) {
		return output(as.command(ctx, cfg.childEnv(), b.path("postgres"), "--version"))
	}
	out, err := version()
	for errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil { // the file was just unpacked, and a child of this process that runs no program yet has it open: https://go.dev/issue/22315
		time.Sleep(10 * time.Millisecond)
		out, err = version()
	}
	if err != nil {
		return binaries{}, fmt.Errorf("%s --version: %w", b.path("postgres"), err)
	}
	b.major, b.minor, err = parseVersion(out)
	return b, err
}

// parseVersion reads "postgres (PostgreSQL) 15.18 (Debian …)", "… 19beta1".
func parseVersion(out string) (major, minor int, err error) {
	m := regexp.MustCompile(`\(PostgreSQL\) (\d+)(?:\.(\d+))?`).FindStringSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("no version in %q", out)
	}
	major, err = strconv.Atoi(m[1])
	if err == nil && m[2] != "" {
		minor, err = strconv.Atoi(m[2])
	}
	return major, minor, err
}
