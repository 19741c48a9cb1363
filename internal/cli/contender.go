package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench/report"
)

// contender is a server in contenders/ that Tidewire is compared with.
type contender struct {
	name     string // as in --target
	dir      string // below contenders/
	endpoint string
	language string
	profile  string
	made     string // what it is built with
	tools    toolchain
}

// Profiles of servers: minimal servers use only a library, others a framework.
// A code base can have both profiles. Tidewire has neither, and is compared
// with both.
const (
	minimal   = report.Minimal
	framework = report.Framework
	both      = report.Both
)

var contenders = []contender{
	{"go-gorilla", "go-gorilla", "chat", "Go", minimal, "net/http + gorilla/websocket", goTools},
	{"go-fiber", "go-fiber", "chat", "Go", framework, "Fiber v2", goTools},
	{"rust-tungstenite", "rust-tungstenite", "chat", "Rust", minimal, "tokio-tungstenite", cargoTools},
	{"rust-axum", "rust-axum", "chat", "Rust", framework, "axum", cargoTools},
	{"zig-std", "zig-std", "chat", "Zig", both, "std.http", zigTools},
	{"gorilla", "go-gorilla-echo", "echo", "Go", minimal, "net/http + gorilla/websocket", goTools},
}

// contendersOf returns the contenders with an endpoint and a profile; "" stands for all profiles.
func contendersOf(endpoint, profile string) (some []contender) {
	for _, c := range contenders {
		if c.endpoint == endpoint && (profile == "" || c.profile == both || c.profile == profile) {
			some = append(some, c)
		}
	}
	return some
}

func findContender(endpoint, name string) (contender, bool) {
	of := contendersOf(endpoint, "")
	if i := slices.IndexFunc(of, func(c contender) bool { return c.name == name }); i >= 0 {
		return of[i], true
	}
	return contender{}, false
}

// labels returns the labels of a result's rows for the target.
func labels(endpoint, name string) map[string]string {
	l := map[string]string{"target": name}
	if c, ok := findContender(endpoint, name); ok {
		l["language"], l["profile"] = c.language, c.profile
	} else if name == "tidewire" {
		l["language"], l["profile"] = "Go", report.Reference
	}
	return l
}

// source finds the folder that a contender is built from: in a checkout that
// contains the working directory or this program.
func (c contender) source() (dir string, err error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if program, err := os.Executable(); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil {
			starts = append(starts, filepath.Dir(program))
		}
	}
	for _, at := range starts {
		for {
			dir := filepath.Join(at, "contenders", c.dir)
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				return dir, nil
			}
			up := filepath.Dir(at)
			if up == at {
				break
			}
			at = up
		}
	}
	return "", exit(ExitUsage, "--target %s: there is no contenders/%s here to build it from: run this in a checkout of Tidewire, or give %s=ws://HOST:PORT/PATH", c.name, c.dir, c.name)
}

// outputs are the names of build outputs in a contender's folder.
var outputs = []string{"bin", "target", "zig-out", ".zig-cache", ".venv"}

// stale reports whether the program is missing, or older than one of its source
// files.
func stale(dir, program string) (bool, error) {
	built, err := os.Stat(program)
	if err != nil {
		return true, nil
	}
	old := false
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(outputs, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || strings.HasSuffix(path, ".md") || entry.Name() == "Dockerfile":
			return nil
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(built.ModTime()) {
			old = true
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for changes of a contender: %w", err)
	}
	return old, nil
}
