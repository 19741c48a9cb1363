package embedpg

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Which binaries to use.
const (
	Auto   = "auto"   // the machine's own, else fetched
	System = "system" // the machine's own only
	Fetch  = "fetch"  // fetched only
)

const (
	minMajor     = 14
	defaultMajor = 18
)

// Config says which PostgreSQL to run, and where.
type Config struct {
	// DataDir is the directory of the database, created if missing.
	// Defaults to DefaultDataDir(Getenv).
	DataDir string
	// CacheDir keeps fetched binaries. Defaults to DefaultCacheDir(Getenv).
	CacheDir string
	// Binaries is Auto, System or Fetch. Defaults to Auto.
	Binaries string
	// Version is the major version to use. Defaults to the data directory's,
	// for a new one to the newest installed, and to 18 where it is fetched.
	Version int
	// BinDir is a directory with initdb and postgres. It overrides Binaries.
	// Defaults to none.
	BinDir string
	// MirrorURL is the root of a Maven repository to fetch from.
	// Defaults to Maven Central.
	MirrorURL string
	// Primary makes a new data directory a streaming standby of this running server. The standby
	// starts from a copy of the primary's data, with the same binaries, and follows it until
	// SELECT pg_promote(). The primary keeps a replication slot for it. Defaults to none.
	Primary *Server
	// Detach leaves PostgreSQL running after Stop and after this process.
	// Defaults to false.
	Detach bool
	// Settings override PostgreSQL's configuration file.
	// Defaults to none: PostgreSQL's own defaults, fsync included.
	Settings map[string]string
	// StartTimeout bounds a start, crash recovery included. Defaults to 2 minutes.
	StartTimeout time.Duration
	// StopTimeout bounds a clean stop; after it PostgreSQL is stopped immediately
	// and recovers at its next start. Defaults to 1 minute.
	StopTimeout time.Duration
	// FetchTimeout bounds fetching; a transfer that stalls ends sooner.
	// Defaults to 10 minutes.
	FetchTimeout time.Duration
	// Progress gets a line for each slow step, on the caller's goroutine.
	// Defaults to none.
	Progress func(string)
	// Getenv returns the values of PATH, HOME, XDG_DATA_HOME, XDG_CACHE_HOME, TZ,
	// LD_LIBRARY_PATH and DYLD_LIBRARY_PATH. Defaults to an empty environment.
	Getenv func(string) string
}

func (c Config) withDefaults() Config {
	if c.Getenv == nil {
		c.Getenv = func(string) string { return "" }
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	c.DataDir = cmp.Or(c.DataDir, DefaultDataDir(c.Getenv))
	c.CacheDir = cmp.Or(c.CacheDir, DefaultCacheDir(c.Getenv))
	c.Binaries = cmp.Or(c.Binaries, Auto)
	if c.Primary != nil {
		c.BinDir = cmp.Or(c.BinDir, c.Primary.BinDir())
	}
	c.StartTimeout = cmp.Or(c.StartTimeout, 2*time.Minute)
	c.StopTimeout = cmp.Or(c.StopTimeout, time.Minute)
	c.FetchTimeout = cmp.Or(c.FetchTimeout, 10*time.Minute)
	return c
}

func (c Config) validate() error {
	if !slices.Contains([]string{Auto, System, Fetch}, c.Binaries) {
		return fmt.Errorf("embedpg: Binaries %q is none of %s, %s, %s", c.Binaries, Auto, System, Fetch)
	}
	if c.Version != 0 && c.Version < minMajor {
		return fmt.Errorf("%w: Version is %d, want %d or newer", ErrVersion, c.Version, minMajor)
	}
	for name, dir := range map[string]string{"DataDir": c.DataDir, "CacheDir": c.CacheDir} {
		if dir == "" {
			return fmt.Errorf("embedpg: %s is empty and there is no home directory to put it in", name)
		}
	}
	// The directory stands in one-line files and in a configuration value.
	if strings.ContainsAny(c.DataDir, "\n\r\x00") {
		return fmt.Errorf("embedpg: DataDir %q has a line break", c.DataDir)
	}
	return nil
}

// childEnv is the whole environment of initdb and postgres: a PGPORT or PGDATA meant
// for another PostgreSQL must not reach this one, and messages stay in English.
func (c Config) childEnv() []string {
	env := []string{"LC_ALL=C", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	for _, name := range []string{"TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v := c.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// DefaultDataDir is /var/lib/tidewire for root, because the unprivileged user
// that PostgreSQL then runs as cannot enter /root, and a directory of the
// user's home for everyone else; empty if there is no home.
func DefaultDataDir(getenv func(string) string) string {
	if os.Geteuid() == 0 {
		return "/var/lib/tidewire"
	}
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tidewire")
	}
	if runtime.GOOS == "darwin" {
		return underHome(getenv, "Library/Application Support/tidewire")
	}
	return underHome(getenv, ".local/share/tidewire")
}

// DefaultCacheDir is the same as DefaultDataDir for fetched binaries.
func DefaultCacheDir(getenv func(string) string) string {
	if os.Geteuid() == 0 {
		return "/var/cache/tidewire"
	}
	if dir := getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tidewire")
	}
	if runtime.GOOS == "darwin" {
		return underHome(getenv, "Library/Caches/tidewire")
	}
	return underHome(getenv, ".cache/tidewire")
}

func underHome(getenv func(string) string, path string) string {
	home := getenv("HOME")
	if home == "" {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	if !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, path)
}
