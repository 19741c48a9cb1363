package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/websocket"
)

// TestServeLanes_FlagsWinOverTheFile: the file says almost never to push 20 KB, the flag says
// often.
func TestServeLanes_FlagsWinOverTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lanes.toml")
	text := "[server]\nport = 1\ndummy_message_size = \"20KB\"\ndummy_message_duration = \"1h\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, latency := range []string{"low", "balanced"} {
		p := serve(t, "--only", "lanes", "--config", file, "--dummy-message-duration", "1ms", "--latency", latency)
		c, err := websocket.Dial(t.Context(), "ws://"+p.addr+"/ws", websocket.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
		c.Queue(websocket.OpText, []byte("a request"))
		dummies, echoes := 0, 0
		for dummies < 3 || echoes < 1 {
			messages, err := c.Read()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				switch {
				case len(m.Payload) == 20<<10:
					dummies++
				case string(m.Payload) == "a request":
					echoes++
				default:
					t.Fatalf("a message of %d bytes", len(m.Payload))
				}
			}
		}
		stopped := make(chan int, 1)
		go func() { stopped <- p.stop(t) }()
		var closed *websocket.CloseError
		for err == nil {
			_, err = c.Read()
		}
		if !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
			t.Errorf("ended with %v, want code 1001", err)
		}
		c.Close(websocket.StatusGoingAway, "")
		if code := <-stopped; code != cli.ExitOK {
			t.Errorf("exit code %d", code)
		}
	}
}

func TestServeLanes_BadValues(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lanes.toml")
	if err := os.WriteFile(file, []byte("[server]\nports = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, value, text string }{
		{"--config", file, file + ": line 2: unknown key server.ports"},
		{"--config", file + ".missing", ".missing"},
		{"--dummy-message-size", "0", "--dummy-message-size: 0 bytes"},
		{"--dummy-message-size", "65MB", "want 1 to 67108864"},
		{"--dummy-message-size=-1", "", "--dummy-message-size"},
		{"--dummy-message-size", "much", "much"},
		{"--dummy-message-duration", "0", "--dummy-message-duration is 0s"},
		{"--dummy-message-duration", "often", "often"},
		{"--latency", "none", "--latency"},
	} {
		args := []string{"serve", "--only", "lanes", "--port", "0", c.flag}
		if c.value != "" {
			args = append(args, c.value)
		}
		code, _, text := run(t, nil, args...)
		if code != cli.ExitUsage || !strings.Contains(text, c.text) || strings.Contains(strings.TrimSpace(lastLine(text)), "\n") {
			t.Errorf("%s %s: exit code %d, %q, want %d and %q in a line", c.flag, c.value, code, text, cli.ExitUsage, c.text)
		}
	}
}
