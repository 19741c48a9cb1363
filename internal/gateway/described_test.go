package gateway

import (
	"net/http"
	"testing"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

// TestDescribed_Codes: internal/wire/spec has each code with its status and whether it is retryable, and no other.
func TestDescribed_Codes(t *testing.T) {
	t.Parallel()
	const file = "internal/wire/spec/errors.go"
	described := make(map[code]spec.Error)
	for _, e := range spec.Errors() {
		described[code(e.Code)] = e
	}
	for name := range publicErrors {
		status, ok := statuses[name]
		if !ok {
			status = http.StatusBadRequest
		}
		e, ok := described[name]
		switch {
		case !ok:
			t.Errorf("%s: add {%q, %d, No, %t, WHY}", file, name, status, retryable[name])
		case e.Status != status && e.Status != 0 || e.Retryable != retryable[name]:
			t.Errorf("%s: %s has the status %d and retryable %t; the server answers %d and %t", file, name, e.Status, e.Retryable, status, retryable[name])
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("%s: %s is no code of the server: remove it there, or add it to publicErrors", file, name)
	}
	for name := range retryable {
		if publicErrors[name] == "" {
			t.Errorf("%s is retryable, and no error", name)
		}
	}
}

// TestDescribed_Routes: internal/wire/spec has each route, and no other.
func TestDescribed_Routes(t *testing.T) {
	t.Parallel()
	described := make(map[string]bool)
	for _, r := range spec.Routes() {
		if r.Right != spec.Public {
			described[r.Pattern()] = true
		}
	}
	for pattern := range routes() {
		if !described[pattern] {
			t.Errorf("internal/wire/spec/routes_*.go: add a Route for %s", pattern)
		}
		delete(described, pattern)
	}
	for pattern := range described {
		t.Errorf("internal/wire/spec/routes_*.go has %s, which is no route of the server", pattern)
	}
}
