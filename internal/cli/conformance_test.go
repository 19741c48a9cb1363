package cli_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/engine/conformance"
	"github.com/tidewire/tidewire/internal/testbin"
)

// TestConformance: the PostgreSQL engine passes the conformance tests for engines.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := exec.Command(tidewire(t), "serve", "--port", "0", "--database-url", migrated(t).URL, "--stored-rooms", "kept")
	conformance.Run(t, testbin.Serve(t, server).Addr)
}

// block matches a block of a page: a transcript of /ws, or commands.
var block = regexp.MustCompile("(?s)```(transcript|console)\n(.*?)```")

// TestClientGuide: the server answers as shown in docs/protocol.md. The commands before the first transcript run before it, and the others after
// all transcripts, which are one exchange.
func TestClientGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--database-url", migrated(t).URL, "--stored-rooms", "lobby")
	var before, after, transcripts strings.Builder
	for _, b := range block.FindAllStringSubmatch(string(text), -1) {
		switch {
		case b[1] == "transcript":
			transcripts.WriteString(b[2])
		case transcripts.Len() == 0:
			before.WriteString(b[2])
		default:
			after.WriteString(b[2])
		}
	}
	exchanges := conformance.Parse(transcripts.String())
	if len(exchanges) < 15 {
		t.Fatalf("only %d requests are found", len(exchanges))
	}
	curlAsShown(t, p.Addr, before.String(), 2)
	conformance.Play(t, p.Addr, exchanges)
	curlAsShown(t, p.Addr, after.String(), 5)
}

// curlAsShown runs commands, of which there are at least so many, and compares what they print with what a page shows.
func curlAsShown(t *testing.T, addr, shown string, least int) {
	t.Helper()
	commands := strings.Split(shown, "$ curl ")[1:]
	if len(commands) < least {
		t.Fatalf("only %d commands are found", len(commands))
	}
	for _, c := range commands {
		line, want, _ := strings.Cut(c, "\n")
		got := curl(t, addr, wordsOf(line))
		if same, err := conformance.Same(strings.TrimSpace(want), got); err != nil || !same {
			t.Errorf("curl %s\nprints %s\nand docs/protocol.md shows %s (%v)", line, got, want, err)
		}
	}
}
