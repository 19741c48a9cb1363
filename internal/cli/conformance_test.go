package cli_test

import (
	"os"
	"testing"

	"github.com/tidewire/tidewire/internal/engine/conformance"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestConformance: the PostgreSQL engine passes the conformance tests for engines.
func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, serve(t, "--database-url", pgtest.Open(t).URL, "--stored-rooms", "kept").addr)
}

// TestClientGuide: the server answers as shown in docs/how-to/write-a-client.md.
func TestClientGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/how-to/write-a-client.md")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--database-url", pgtest.Open(t).URL, "--stored-rooms", "lobby")
	for _, path := range []string{"streams/orders", "queues/jobs"} {
		curl(t, p.addr, []string{"-X", "POST", "localhost:8080/v1/" + path})
	}
	exchanges := conformance.Parse(string(text))
	if len(exchanges) < 15 {
		t.Fatalf("only %d requests are found", len(exchanges))
	}
	conformance.Play(t, p.addr, exchanges)
}
