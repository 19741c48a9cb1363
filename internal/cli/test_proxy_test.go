package cli_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestTestProxy: it prints its two addresses, does what it is told, and ends with its context.
func TestTestProxy(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, cli.Env{Args: []string{"test-proxy", "127.0.0.1:1"}, Getenv: func(string) string { return "" }, Out: in, Err: io.Discard})
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	var said []string
	for len(said) < 2 && lines.Scan() {
		said = append(said, lines.Text())
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "clients: 127.0.0.1:") {
		t.Fatalf("%q", said)
	}
	answer, err := http.Get(strings.TrimPrefix(said[1], "control: ") + "/state")
	if err != nil {
		t.Fatal(err)
	}
	state, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if !strings.Contains(string(state), `"connections":0`) {
		t.Errorf("%s", state)
	}
	stop()
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}
