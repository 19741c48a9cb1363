package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"
)

const (
	// requestIDHeader names an HTTP request in its answer, in the lines of the log and in the audit log, so that they can be found by what a client
	// or a proxy knows of it.
	requestIDHeader = "X-Request-Id"
	// maxRequestID is the longest one that is taken, in bytes.
	maxRequestID = 128
)

// nameRequest gives a request its ID, the client's if that is usable, and puts it into the header of the answer.
func nameRequest(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(requestIDHeader)
	if !usableRequestID(id) {
		id = rand.Text()
		r.Header.Set(requestIDHeader, id)
	}
	w.Header().Set(requestIDHeader, id)
}

// usableRequestID reports whether an ID consists of 1 to maxRequestID visible ASCII characters.
func usableRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && strings.IndexFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

// requestID is the ID of a request.
func requestID(r *http.Request) string { return r.Header.Get(requestIDHeader) }
