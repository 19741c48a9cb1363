package cli

import "testing"

func TestBrowsed(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{"": "localhost", "0.0.0.0": "localhost", "::": "localhost", "::1": "::1", "localhost": "localhost", "10.0.0.7": "10.0.0.7", "example.com": "example.com"} {
		if got := browsed(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
