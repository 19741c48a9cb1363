package auth_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/auth"
)

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "10.0.0.7": false, "example.com": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "": false} {
		if got := auth.IsLoopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
