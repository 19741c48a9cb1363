package console_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/console"
)

func get(t *testing.T, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	console.Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asset is a file that the page names.
var asset = regexp.MustCompile(`/console/(assets/[^"]+)`)

// TestPages: each path below the prefix is the page, which is asked for anew each time.
func TestPages(t *testing.T) {
	t.Parallel()
	want := body(t, get(t, "GET", "/console/"))
	for _, path := range []string{"/console/streams", "/console/streams/orders?after=10", "/console/streams/a%2Fb", "/console/../etc/passwd"} {
		resp := get(t, "GET", path)
		if got := body(t, resp); resp.StatusCode != http.StatusOK || got != want {
			t.Errorf("%s: %d %.60q", path, resp.StatusCode, got)
		}
		if kind := resp.Header.Get("Content-Type"); kind != "text/html; charset=utf-8" {
			t.Errorf("%s: %s", path, kind)
		}
		if kept := resp.Header.Get("Cache-Control"); kept != "no-cache" {
			t.Errorf("%s: Cache-Control %q", path, kept)
		}
		if again := get(t, "GET", path, "If-None-Match", resp.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: %d for what has not changed", path, again.StatusCode)
		}
	}
}

// TestHeaders: each answer has them, and what the page loads is allowed by them: nothing is inline or elsewhere.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/console/", "/console/assets/none.js"} {
		h := get(t, "GET", path).Header
		for _, part := range []string{"default-src 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(h.Get("Content-Security-Policy"), part) {
				t.Errorf("%s: no %s", path, part)
			}
		}
		if strings.Contains(h.Get("Content-Security-Policy"), "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
	}
	page := body(t, get(t, "GET", "/console/"))
	if inline := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\son\w+=|style=|https?://`).FindString(page); inline != "" {
		t.Errorf("the page has %q", inline)
	}
}

// TestAssets: files whose names change with their content are kept for ever; one that is missing is no page.
func TestAssets(t *testing.T) {
	t.Parallel()
	names := asset.FindAllStringSubmatch(body(t, get(t, "GET", "/console/")), -1)
	if len(names) < 2 {
		t.Fatalf("the page names %d files: want a script and a style sheet", len(names))
	}
	for _, name := range names {
		resp := get(t, "GET", name[0])
		if kept := resp.Header.Get("Cache-Control"); resp.StatusCode != http.StatusOK || !strings.Contains(kept, "immutable") {
			t.Errorf("%s: %d, Cache-Control %q", name[0], resp.StatusCode, kept)
		}
		if kind := resp.Header.Get("Content-Type"); strings.HasSuffix(name[0], ".js") != (kind == "text/javascript; charset=utf-8") {
			t.Errorf("%s: %s", name[0], kind)
		}
	}
	if resp := get(t, "GET", "/console/assets/app-OLD.js"); resp.StatusCode != http.StatusNotFound || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("a missing file: %d", resp.StatusCode)
	}
}

// TestCompression: clients that take gzip get it, with an ETag of its own.
func TestCompression(t *testing.T) {
	t.Parallel()
	plain := get(t, "GET", "/console/")
	for header, want := range map[string]bool{"gzip": true, "br, gzip;q=0.8": true, "gzip;q=0": false, "identity": false} {
		resp := get(t, "GET", "/console/", "Accept-Encoding", header)
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != want || resp.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: gzip %v", header, got)
		}
		if want == (resp.Header.Get("ETag") == plain.Header.Get("ETag")) {
			t.Errorf("%s: ETag %s", header, resp.Header.Get("ETag"))
		}
		if !want {
			continue
		}
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(z); err != nil || !strings.HasPrefix(string(text), "<!doctype html>") {
			t.Errorf("%.30q %v", text, err)
		}
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	if resp := get(t, "POST", "/console/"); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d", resp.StatusCode)
	}
	if resp := get(t, "HEAD", "/console/"); resp.StatusCode != http.StatusOK || body(t, resp) != "" {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
}
