package gateway

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for clientScript
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

// clientPath is where pages get the client.
const clientPath = "/client.js"

// clientScript is the client for pages, as clients/ts builds it.
//
//go:embed assets/client.js
var clientScript []byte

// descriptions are the paths of the documents that describe the wire. Everybody may read them, without a token: they say what the documentation
// says. The rules for hosts and origins, and the limits of requests, hold for them too.
func (a *api) descriptions() {
	for path, of := range map[string]func(version string) []byte{"/v1/openapi.json": spec.OpenAPI, "/v1/asyncapi.json": spec.AsyncAPI} {
		a.mux.Handle("GET "+path, described("application/json", func() []byte { return of(a.server.cfg.Version) }))
	}
	a.mux.Handle("GET "+clientPath, described("text/javascript; charset=utf-8", func() []byte { return clientScript }))
}

// described serves a document. Clients may keep it, and ask each time whether it has changed: a server has another one after an upgrade.
func described(contentType string, document func() []byte) http.Handler {
	type made struct {
		text []byte
		tag  string
	}
	once := sync.OnceValue(func() made {
		text := document()
		return made{text, fmt.Sprintf(`"%x"`, sha256.Sum256(text))}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := once()
		setHeaders(w.Header())
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, no-cache")
		w.Header().Set("ETag", d.tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.text))
	})
}
