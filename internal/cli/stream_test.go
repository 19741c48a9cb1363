package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
)

func TestStream_Commands(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "orders", "--keyed")
	s.run("stream", "create", "orders", "--keyed") // again, unchanged
	s.in("", cli.ExitUsage, "stream", "create", "orders")
	if out := s.run("stream", "publish", "orders", "--key", "k", "--header", "a=b", "one", "two"); out != "published 2, last position 2\n" {
		t.Errorf("publish: %q", out)
	}
	if out, _ := s.in("three\r\n\nlast", cli.ExitOK, "stream", "publish", "orders"); out != "published 3, last position 5\n" {
		t.Errorf("publish of lines: %q", out)
	}
	if out := s.run("stream", "replay", "orders", "--raw"); out != "one\ntwo\nthree\n\nlast\n" {
		t.Errorf("replay: %q", out)
	}
	if out := s.run("stream", "replay", "orders", "--raw", "--after", "4"); out != "last\n" {
		t.Errorf("replay from a position: %q", out)
	}
	if out := s.run("stream", "replay", "orders", "--raw", "--since", "1h", "--key", "k"); out != "one\ntwo\n" {
		t.Errorf("replay of a key: %q", out)
	}
	if out := s.run("stream", "replay", "orders", "--from", "end"); out != "" {
		t.Errorf("replay from the end: %q", out)
	}
	if out := s.run("stream", "tail", "orders", "--from", "start", "--group", "g", "-n", "3", "--raw"); out != "one\ntwo\nthree\n" {
		t.Errorf("tail of a group: %q", out)
	}
	if out := s.run("stream", "tail", "orders", "--group", "g", "-n", "1", "--raw"); out != "\n" {
		t.Errorf("tail of the group again: %q", out)
	}
	if out := s.run("stream", "info", "orders"); !strings.Contains(out, "last position: 5") || !strings.Contains(out, "that small streams share\n") || !strings.Contains(out, "g     │      4 │   1") {
		t.Errorf("info: %s", out)
	}
	if out := s.run("stream", "list"); !strings.Contains(out, "orders │ yes   │             5") {
		t.Errorf("list: %s", out)
	}
	s.in("", cli.ExitUsage, "stream", "drop", "orders")
	s.run("stream", "drop", "orders", "--yes")
	s.in("", cli.ExitFailure, "stream", "drop", "orders", "--yes")
	s.in("", cli.ExitFailure, "stream", "replay", "orders")
}

func TestStream_Retain(t *testing.T) {
	notShort(t)
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "orders")
	for _, c := range []struct{ flags, keeps string }{
		{"--max-age 168h --max-bytes 1GB --consumed", "the last 168h0m0s, at most 1.0 GiB, and what a group has not read; everything while there is no group"},
		{"--max-bytes 2000", "at most 2.0 KiB"}, // the age is not given, and is removed
		{"--max-bytes 100 --max-age 0s", "at most 100 bytes"},
		{"--max-age 90 --max-bytes 0", "the last 1m30s"},
		{"--consumed", "what a group has not read; everything while there is no group"},
		{"--max-age 0s --max-bytes 0", "everything"}, // 0 is no limit
		{"--max-bytes 3MB", "at most 3.0 MiB"},
		{"", "everything"},
	} {
		if out := s.run(append([]string{"stream", "retain", "orders"}, strings.Fields(c.flags)...)...); out != "stream orders keeps "+c.keeps+"\n" {
			t.Errorf("retain %s: %s", c.flags, out)
		}
		if out := s.run("stream", "info", "orders"); !strings.Contains(out, "\nretention: "+c.keeps+"\n") {
			t.Errorf("info after %s: %s", c.flags, out)
		}
	}
	s.run("queue", "create", "jobs")
	if _, errOut := s.in("", cli.ExitUsage, "stream", "retain", "jobs", "--max-age", "1h"); !strings.Contains(errOut, "of a queue") {
		t.Errorf("retention of a queue's stream: %s", errOut)
	}
	s.in("", cli.ExitFailure, "stream", "retain", "none", "--max-age", "1h")
}

// TestStream_Pipes: publish accepts the output of replay.
func TestStream_Pipes(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "a")
	s.run("stream", "create", "b")
	lines := `{"payload":"text","key":"ü","headers":{"n":1}}` + "\n" + `{"payload_base64":"/wA="}` + "\n" + `{}` + "\n"
	s.in(lines, cli.ExitOK, "stream", "publish", "a", "--json")
	printed := s.run("stream", "replay", "a")
	s.in(printed, cli.ExitOK, "stream", "publish", "b", "--json")
	again := s.run("stream", "replay", "b")
	for i, line := range strings.Split(strings.TrimSpace(again), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		want := []string{`map[headers:map[n:1] key:ü payload:text position:1]`, `map[payload_base64:/wA= position:2]`, `map[position:3]`}[i]
		if delete(m, "time"); fmt.Sprint(m) != want {
			t.Errorf("line %d: %v", i, m)
		}
	}
}

func TestStream_BadInput(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "a")
	s.run("stream", "create", "divided", "--partitions", "3")
	for _, c := range []struct {
		in   string
		code int
		say  string
		args []string
	}{
		{"", cli.ExitFailure, "not found", []string{"publish", "none", "x"}},
		{"{bad\n", cli.ExitUsage, "line 1", []string{"publish", "a", "--json"}},
		{`{"payload":"a","payload_base64":"YQ=="}`, cli.ExitUsage, "exclude each other", []string{"publish", "a", "--json"}},
		{`{"payload":"a","headers":[1]}`, cli.ExitUsage, "not a JSON object", []string{"publish", "a", "--json"}},
		{"", cli.ExitUsage, "with --json", []string{"publish", "a", "--json", "--key", "k"}},
		{"", cli.ExitUsage, "key", []string{"publish", "a", "x", "--key", strings.Repeat("k", 2000)}},
		{"", cli.ExitUsage, "not keyed", []string{"replay", "a", "--key", "k"}},
		{"", cli.ExitUsage, "exclude each other", []string{"tail", "a", "--after", "1", "--from", "end"}},
		{"", cli.ExitUsage, "--after is -1: want 0 or more", []string{"tail", "a", "--after=-1"}},
		{"", cli.ExitUsage, "not a time", []string{"tail", "a", "--since", "yesterday"}},
		{"", cli.ExitUsage, "at least 1", []string{"tail", "a", "--count=-1"}},
		{"", cli.ExitUsage, "such as orders/0", []string{"replay", "divided"}},
		{"", cli.ExitUsage, "such as orders/0", []string{"tail", "divided"}},
		{"", cli.ExitUsage, "name", []string{"create", strings.Repeat("n", 200)}},
	} {
		if _, errOut := s.in(c.in, c.code, append([]string{"stream"}, c.args...)...); !strings.Contains(errOut, c.say) {
			t.Errorf("%v: %s", c.args, errOut)
		}
	}
}

// TestStream_TailBesideAPublisher prints new messages until it is stopped.
func TestStream_TailBesideAPublisher(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "a")
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	out := &until{text: "last\n", then: stop}
	done := make(chan int)
	go func() {
		done <- cli.Run(ctx, cli.Env{
			Args: []string{"stream", "tail", "a", "--from", "start", "--raw", "--database-url", s.url}, Getenv: func(string) string { return "" },
			In: strings.NewReader(""), Out: out, Err: out,
		})
	}()
	s.run("stream", "publish", "a", "first", "last")
	if code := <-done; code != cli.ExitOK || !strings.HasSuffix(out.got.String(), "first\nlast\n") {
		t.Errorf("exit code %d, printed %q", code, out.got.String())
	}
}

// until calls then when a text was written to it.
type until struct {
	got  bytes.Buffer
	text string
	then func()
}

func (u *until) Write(p []byte) (int, error) {
	u.got.Write(p)
	if strings.HasSuffix(u.got.String(), u.text) {
		u.then()
	}
	return len(p), nil
}
