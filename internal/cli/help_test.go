package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestHelp_AsAWord: the word help means --help, except where it is an argument.
func TestHelp_AsAWord(t *testing.T) {
	t.Parallel()
	for words, flag := range map[string]string{
		"help": "--help", "stream help": "stream --help", "help stream": "stream --help", "help stream retain": "stream retain --help",
		"queue help": "queue --help", "serve help": "serve --help",
	} {
		code, out, errOut := run(t, nil, strings.Fields(words)...)
		want, wanted, _ := run(t, nil, strings.Fields(flag)...)
		if code != want || code != cli.ExitOK || out != wanted || !strings.HasPrefix(out, "Usage: tidewire") {
			t.Errorf("%s: exit code %d, %s%s; want what %s prints", words, code, out, errOut, flag)
		}
	}
	for _, line := range []string{"version", "--version"} {
		if code, out, text := run(t, nil, line); code != cli.ExitOK || !strings.HasPrefix(out, "tidewire ") || text != "" {
			t.Errorf("%s: exit code %d, %q %q", line, code, out, text)
		}
	}
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "help")
	s.run("stream", "publish", "help", "help")
	if out := s.run("stream", "replay", "help", "--raw"); out != "help\n" {
		t.Errorf("replay: %q", out)
	}
}
