// Package console serves the web console: the files that `make console` builds from the folder console.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// Prefix is the path under which the console is served. All paths below it that are no file are views of its one page.
const Prefix = "/console/"

//go:embed dist
var dist embed.FS

// policy lets the page load nothing from elsewhere, and be in no frame. There is no inline script or style.
const policy = "default-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is a file with what is sent with it.
type file struct {
	body, compressed []byte
	kind, tag        string
}

// kinds are the types of files by the ends of their names. The table of the machine does not count.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}

// files are those of dist, by their path below Prefix. They are compressed once.
var files = sync.OnceValue(func() map[string]file {
	all := make(map[string]file)
	fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		all[strings.TrimPrefix(name, "dist/")] = newFile(name, body)
		return nil
	}) // an embedded file can be read
	return all
})

func newFile(name string, body []byte) file {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	w.Write(body)
	w.Close()
	return file{body, b.Bytes(), kinds[path.Ext(name)], fmt.Sprintf("%x", sha256.Sum256(body))[:32]}
}

// Handler serves the console at Prefix.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the console has only GET", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	found, ok := files()[name]
	hashed := strings.HasPrefix(name, "assets/")
	switch {
	case ok && hashed: // its name changes with its content
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	case hashed:
		h.Set("Cache-Control", "no-store")
		http.Error(w, "there is no such file: load the page again, the server has another version", http.StatusNotFound)
		return
	default:
		if !ok {
			found = files()["index.html"]
		}
		h.Set("Cache-Control", "no-cache")
	}
	send(w, r, found)
}

func send(w http.ResponseWriter, r *http.Request, f file) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Add("Vary", "Accept-Encoding")
	body := f.body
	if acceptsGzip(r) {
		body = f.compressed
		h.Set("Content-Encoding", "gzip")
		h.Set("ETag", `"`+f.tag+`-gzip"`)
	} else {
		h.Set("ETag", `"`+f.tag+`"`)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsGzip reports whether a client lists gzip without a quality of 0.
func acceptsGzip(r *http.Request) bool {
	for _, one := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		coding, quality, _ := strings.Cut(one, ";")
		if strings.TrimSpace(coding) == "gzip" {
			quality = strings.ReplaceAll(quality, " ", "")
			return quality != "q=0" && quality != "q=0.0" && quality != "q=0.00" && quality != "q=0.000"
		}
	}
	return false
}
