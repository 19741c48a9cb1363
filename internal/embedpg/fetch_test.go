package embedpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ulikunitz/xz"

	"golang.org/x/sync/errgroup"

	"github.com/tidewire/tidewire/internal/testbin"
	"github.com/tidewire/tidewire/internal/testkit"
)

func TestFetch_RealPostgreSQL(t *testing.T) {
	testkit.Long(t) // it fetches PostgreSQL where the cache does not have it yet
	t.Parallel()
	cfg := testConfig(t)
	fetchAsUsersDo(t, cfg.DataDir)
	cfg.Binaries, cfg.Version = Fetch, 18
	cfg.Progress = func(text string) { t.Log(text) }
	srv := start(t, cfg)
	if !strings.HasPrefix(srv.Version(), "18.") || !strings.HasPrefix(srv.BinDir(), DefaultCacheDir(os.Getenv)) {
		t.Errorf("PostgreSQL %s in %s", srv.Version(), srv.BinDir())
	}
	query(t, srv.URL(), "CREATE TABLE kept AS SELECT 'here' AS v")
	stop(t, srv)

	// Only the version that made the data is used, even if others are installed.
	cfg.Binaries, cfg.Version = Auto, 0
	srv = start(t, cfg)
	if got := query(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
		t.Errorf("got %q", got)
	}
}

// fetchAsUsersDo fetches with the program: with the race detector, to unpack takes a minute.
func fetchAsUsersDo(t *testing.T, dir string) {
	t.Helper()
	tidewire, err := testbin.Tidewire()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"start", "--postgres", "fetch", "--pg-version", "18"}, {"stop"}} {
		cmd := exec.Command(tidewire, append(append([]string{"db"}, args...), "--data-dir", dir)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
}

func TestFetch_OnceForMany(t *testing.T) {
	t.Parallel()
	m := newMirror(t, goodArchive(t))
	var all errgroup.Group
	for range 4 {
		all.Go(func() error {
			_, err := m.fetcher(t).fetch(t.Context())
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := m.archives.Load(); got != 1 {
		t.Errorf("fetched %d times", got)
	}
	info, err := os.Stat(filepath.Join(m.fetcher(t).home(), "bin", "postgres"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	link, err := os.Readlink(filepath.Join(m.fetcher(t).home(), "lib", "link"))
	if err != nil || link != "file" {
		t.Errorf("link %q, %v", link, err)
	}
}

func TestFetch_RefusesWrongArchive(t *testing.T) {
	t.Parallel()
	good := goodArchive(t)
	for name, change := range map[string]func(*mirror, *fetcher){
		"pinned sum":          func(_ *mirror, f *fetcher) { f.sum = strings.Repeat("0", 64) },
		"published sum":       func(m *mirror, f *fetcher) { f.sum, m.sum = "", strings.Repeat("0", 64) },
		"no published sum":    func(m *mirror, f *fetcher) { f.sum, m.sum = "", "" },
		"not found":           func(_ *mirror, f *fetcher) { f.version = "18.99.0" },
		"cut short":           func(m *mirror, _ *fetcher) { m.serve = serveHalf },
		"stalled":             func(m *mirror, f *fetcher) { m.serve, f.stall = serveAndHang, 100*time.Millisecond },
		"out of time":         func(m *mirror, f *fetcher) { m.serve, f.cfg.FetchTimeout = serveAndHang, 100*time.Millisecond },
		"does not run":        func(m *mirror, f *fetcher) { m.use(f, archive(t, "exit 1", "lib/file")) },
		"wrong version":       func(m *mirror, f *fetcher) { m.use(f, archive(t, `echo "postgres (PostgreSQL) 17.1"`, "lib/file")) },
		"reaches outside":     func(m *mirror, f *fetcher) { m.use(f, archive(t, runs, "../outside")) },
		"not an archive":      func(m *mirror, f *fetcher) { m.use(f, []byte("hello")) },
		"nobody is listening": func(m *mirror, _ *fetcher) { m.server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t, good)
			f := m.fetcher(t)
			change(m, &f)
			_, err := f.fetch(t.Context())
			if !errors.Is(err, ErrFetch) || !strings.Contains(err.Error(), "--database-url") {
				t.Errorf("got %v", err)
			}
			entries, err := os.ReadDir(m.cache)
			if err != nil || len(entries) != 1 {
				t.Errorf("left %v, %v; want the lock only", entries, err)
			}
		})
	}
}

func TestFetch_ReplacesWhatAKilledOneLeft(t *testing.T) {
	t.Parallel()
	m := newMirror(t, goodArchive(t))
	f := m.fetcher(t)
	half := filepath.Join(m.cache, ".fetch-123")
	for _, dir := range []string{half, filepath.Join(f.home(), "bin")} {
		if err := f.as.makeWay(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", half, err)
	}
}

func TestFetch_PublishedSum(t *testing.T) {
	t.Parallel()
	m := newMirror(t, goodArchive(t))
	f := m.fetcher(t)
	f.sum = ""
	m.sum += "  archive.jar\n"
	if _, err := f.fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPinnedSum_CoversTheVersions(t *testing.T) {
	t.Parallel()
	for major := minMajor; major <= defaultMajor; major++ {
		f, err := newFetcher(Config{}, account{}, major)
		if err != nil {
			t.Fatal(err)
		}
		for _, platform := range []string{"linux-amd64", "linux-arm64v8", "darwin-amd64", "darwin-arm64v8"} {
			unpublished := major < 16 && strings.HasSuffix(platform, "arm64v8")
			if got := pinnedSum(platform, f.version); (len(got) == 64) == unpublished {
				t.Errorf("%s %s: sum %q", f.version, platform, got)
			}
		}
	}
}

// mirror serves one archive for every name but that of version 18.99.0.
type mirror struct {
	server   *httptest.Server
	cache    string
	body     []byte
	sum      string
	serve    func(w http.ResponseWriter, r *http.Request, body []byte)
	archives atomic.Int64
}

func newMirror(t *testing.T, body []byte) *mirror {
	m := &mirror{cache: filepath.Join(tempDir(t), "cache"), body: body, sum: sumOf(body)}
	m.serve = func(w http.ResponseWriter, _ *http.Request, body []byte) { w.Write(body) }
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "18.99.0"), strings.HasSuffix(r.URL.Path, ".sha256") && m.sum == "":
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".sha256"):
			w.Write([]byte(m.sum))
		default:
			m.archives.Add(1)
			m.serve(w, r, m.body)
		}
	}))
	t.Cleanup(m.server.Close)
	return m
}

func (m *mirror) use(f *fetcher, body []byte) { m.body, f.sum = body, sumOf(body) }

func (m *mirror) fetcher(t *testing.T) fetcher {
	t.Helper()
	cfg := Config{CacheDir: m.cache, MirrorURL: m.server.URL, Getenv: os.Getenv, DataDir: "unused"}.withDefaults()
	as, err := runAs("")
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFetcher(cfg, as, 18)
	if err != nil {
		t.Fatal(err)
	}
	f.sum = sumOf(m.body)
	return f
}

func serveHalf(w http.ResponseWriter, _ *http.Request, body []byte) {
	w.Header().Set("Content-Length", "1000000")
	w.Write(body[:len(body)/2])
}

func serveAndHang(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Write(body[:len(body)/2])
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

const runs = `echo "postgres (PostgreSQL) 18.3"`

func goodArchive(t *testing.T) []byte { return archive(t, runs, "lib/file") }

// archive packs scripts in PostgreSQL's place as the real ones are packed, and
// one more file.
func archive(t *testing.T, postgres, file string) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range []struct{ name, content string }{
		{"bin/postgres", "#!/bin/sh\n" + postgres + "\n"},
		{"bin/initdb", "#!/bin/sh\n"},
		{file, strings.Repeat("x", 100_000)},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "lib/link", Linkname: "file", Typeflag: tar.TypeSymlink}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	entry, err := z.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entry.Write(xzOf(t, packed.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return jar.Bytes()
}

// xzOf returns data as an .xz file.
func xzOf(t *testing.T, data []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := xz.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}
