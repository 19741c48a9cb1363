package tidewire_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// command runs the go command in a folder.
func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// module makes a module that requires this one, with a file.
func module(t *testing.T, source string) string {
	dir := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	const path = "github.com/tidewire/tidewire/clients/go"
	mod := fmt.Sprintf("module example.com/app\n\ngo 1.24.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", path, path, here)
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": mod, "go.sum": string(sum), "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAProgramGetsNothingOfTheServer(t *testing.T) {
	dir := module(t, `package main

import "github.com/tidewire/tidewire/clients/go"

func main() {
	c, _ := tidewire.Open("ws://localhost:8080/ws", tidewire.Options{})
	c.Close()
}
`)
	command(t, dir, "build", "-o", os.DevNull, ".")
	modules := strings.Split(strings.TrimSpace(command(t, dir, "list", "-m", "-f", "{{.Path}}", "all")), "\n")
	want := []string{"example.com/app", "github.com/gorilla/websocket", "github.com/tidewire/tidewire/clients/go"}
	if strings.Join(modules, " ") != strings.Join(want, " ") {
		t.Errorf("the modules are %v, want %v", modules, want)
	}
}

// TestREADME builds each block of Go in README.md as a function.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("there are %d blocks", len(blocks))
	}
	var source strings.Builder
	source.WriteString(`package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/tidewire/tidewire/clients/go"
)

type Order struct{ ID int }
type Mail struct{ To string }

var c, another *tidewire.Client
var orders *tidewire.Stream[Order]
var last int64
var _ = errors.New
var _ = time.Now
var _ = log.Println

func handle(Order)                                      {}
func book([]tidewire.Message[Order])                    {}
func send(context.Context, Mail) error                  { return nil }
func fetchToken(context.Context) (string, error)        { return "", nil }
func main()                                             {}
`)
	for i, block := range blocks {
		fmt.Fprintf(&source, "\nfunc block%d(ctx context.Context) error {\n%s\nreturn nil\n}\n", i, block[1])
	}
	command(t, module(t, source.String()), "build", "-o", os.DevNull, ".")
}
