package cli_test

import (
	"os"
	"testing"

	"github.com/tidewire/tidewire/internal/engine/conformance"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestConformance: the engine on PostgreSQL does what every engine has to do.
func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, serve(t, "--database-url", pgtest.Open(t).URL, "--stored-rooms", "kept").addr)
}

// TestClientGuide: what docs/how-to/write-a-client.md shows is what the server answers.
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
