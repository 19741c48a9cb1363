package embedpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// fetcher brings the binaries of one version into the cache.
type fetcher struct {
	cfg        Config
	as         account
	repository string
	platform   string
	version    string
	sum        string // hex SHA-256 of the archive; if empty, the published sum is used
	stall      time.Duration
}

// repository has the archives of https://github.com/zonkyio/embedded-postgres-binaries: Maven Central.
const repository = "https://repo1.maven.org/maven2"

// versions are the archives that are fetched, by major version of PostgreSQL. Their sums are in checksums.go.
var versions = map[int]string{14: "14.18.0", 15: "15.13.0", 16: "16.9.0", 17: "17.5.0", 18: "18.3.0"}

func newFetcher(cfg Config, as account, major int) (fetcher, error) {
	version := versions[major]
	if version == "" {
		return fetcher{}, fmt.Errorf("%w: PostgreSQL %d is not offered, only %d to %d", ErrFetch, major, minMajor, defaultMajor)
	}
	platform, err := fetchPlatform(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return fetcher{}, err
	}
	return fetcher{
		cfg:        cfg,
		as:         as,
		repository: strings.TrimRight(cmp.Or(cfg.MirrorURL, repository), "/"),
		platform:   platform,
		version:    version,
		sum:        pinnedSum(platform, version),
		stall:      30 * time.Second,
	}, nil
}

// fetchPlatform returns the publisher's name for a platform.
func fetchPlatform(goos, goarch string) (string, error) {
	arch, ok := map[string]string{"amd64": "amd64", "arm64": "arm64v8"}[goarch]
	if !ok || (goos != "linux" && goos != "darwin") {
		return "", fmt.Errorf("%w: no binaries are available for %s/%s: install PostgreSQL %d or newer, or give the URL of a running one", ErrFetch, goos, goarch, minMajor)
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil && goos == "linux" {
		arch += "-alpine"
	}
	return goos + "-" + arch, nil
}

func (f fetcher) home() string {
	return filepath.Join(f.cfg.CacheDir, "postgresql-"+f.version+"-"+f.platform)
}

// fetch returns the cached binaries, or fetches them. Of several processes at the same
// time one fetches, and the others wait for it.
func (f fetcher) fetch(ctx context.Context) (binaries, error) {
	if b, ok := f.cached(ctx); ok {
		return b, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.FetchTimeout)
	defer cancel()
	b, err := f.fetchLocked(ctx)
	if err != nil {
		return binaries{}, fmt.Errorf("%w %s: %w\n  Do one of these: install PostgreSQL (for example: apt install postgresql, brew install postgresql), give a running one with --database-url, or a repository that can be reached with --pg-mirror", ErrFetch, f.version, err)
	}
	return b, nil
}

// cached returns the binaries in the cache. They are complete, because the directory got
// its name by a rename; cached still checks that postgres runs and has the version.
func (f fetcher) cached(ctx context.Context) (binaries, bool) {
	b, err := f.check(ctx, f.home())
	return b, err == nil
}

func (f fetcher) check(ctx context.Context, dir string) (binaries, error) {
	b, err := probe(ctx, f.cfg, f.as, filepath.Join(dir, "bin"))
	if err == nil && !strings.HasPrefix(f.version, fmt.Sprintf("%d.%d.", b.major, b.minor)) {
		err = fmt.Errorf("it is PostgreSQL %d.%d", b.major, b.minor)
	}
	return b, err
}

func (f fetcher) fetchLocked(ctx context.Context) (binaries, error) {
	dir := f.cfg.CacheDir
	if err := f.as.makeWay(dir); err != nil {
		return binaries{}, fmt.Errorf("%w: %w: choose another cache directory", ErrNotWritable, err)
	}
	if err := f.as.canEnter(dir); err != nil {
		return binaries{}, err
	}
	lock, err := f.waitLock(ctx)
	if err != nil {
		return binaries{}, err
	}
	defer unlock(lock)
	if b, ok := f.cached(ctx); ok {
		return b, nil // another process has fetched it meanwhile
	}
	// These are left by a killed process: only the holder of the lock makes them.
	left, _ := filepath.Glob(filepath.Join(globSafe(dir), ".fetch-*"))
	for _, path := range append(left, f.home()) {
		if err := os.RemoveAll(path); err != nil {
			return binaries{}, err
		}
	}
	tmp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return binaries{}, err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return binaries{}, err
	}
	archive := filepath.Join(tmp, "archive")
	if err := f.download(ctx, archive); err != nil {
		return binaries{}, err
	}
	f.cfg.Progress("unpacking PostgreSQL " + f.version)
	unpacked := filepath.Join(tmp, "pg")
	if err := unpack(ctx, archive, unpacked); err != nil {
		return binaries{}, fmt.Errorf("unpack: %w", err)
	}
	if _, err := f.check(ctx, unpacked); err != nil {
		return binaries{}, fmt.Errorf("the fetched PostgreSQL does not run on this machine: %w", err)
	}
	if err := os.Rename(unpacked, f.home()); err != nil {
		return binaries{}, err
	}
	if err := syncDir(dir); err != nil {
		return binaries{}, err
	}
	f.cfg.Progress("PostgreSQL " + f.version + " is ready in " + f.home())
	return f.check(ctx, f.home())
}

func (f fetcher) waitLock(ctx context.Context) (*os.File, error) {
	said := false
	var lock *os.File
	err := poll(ctx, func() (bool, error) {
		var err error
		lock, err = flock(filepath.Join(f.cfg.CacheDir, "fetch.lock"))
		if errors.Is(err, errLocked) {
			if !said {
				f.cfg.Progress("waiting for another process that fetches PostgreSQL")
				said = true
			}
			return false, nil
		}
		return err == nil, err
	})
	return lock, err
}

// globSafe quotes the special characters of filepath.Glob.
func globSafe(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
