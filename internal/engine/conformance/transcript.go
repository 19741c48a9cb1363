package conformance

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
)

//go:embed transcripts/*.txt
var files embed.FS

// Exchange is a request and its expected answers.
type Exchange struct {
	Line    int
	Request string // a WebSocket message, or METHOD PATH BODY if HTTP is set
	HTTP    bool
	Answers []string // for HTTP exactly one: STATUS BODY
}

// Transcripts returns the texts of all transcripts by name.
func Transcripts() (map[string]string, error) {
	names, err := fs.Glob(files, "transcripts/*.txt")
	if err != nil {
		return nil, err
	}
	all := make(map[string]string)
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(strings.TrimPrefix(name, "transcripts/"), ".txt")] = string(text)
	}
	return all, nil
}

// Parse returns the exchanges of a text. It ignores lines that do not belong to
// a transcript, so the text may be a page of documentation.
func Parse(text string) (all []Exchange) {
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		first, rest, _ := strings.Cut(line, " ")
		switch first {
		case "→":
			all = append(all, Exchange{Line: n + 1, Request: rest})
		case "GET", "POST", "DELETE":
			all = append(all, Exchange{Line: n + 1, Request: line, HTTP: true})
		case "←":
			all[len(all)-1].Answers = append(all[len(all)-1].Answers, rest)
		default:
			if len(first) == 3 && first[0] >= '2' && first[0] <= '5' && len(all) > 0 && all[len(all)-1].HTTP {
				all[len(all)-1].Answers = append(all[len(all)-1].Answers, line)
			}
		}
	}
	return all
}

// Same reports whether got matches want: both are JSON, and "…" in want matches
// any value.
func Same(want, got string) (bool, error) {
	var w, g any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		return false, fmt.Errorf("wanted %s: %w", want, err)
	}
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		return false, fmt.Errorf("got %s: %w", got, err)
	}
	return same(w, g), nil
}

func same(want, got any) bool {
	switch w := want.(type) {
	case string:
		return w == "…" || w == got
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(w) != len(g) {
			return false
		}
		for key, value := range w {
			if has, there := g[key]; !there || !same(value, has) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(w) != len(g) {
			return false
		}
		for i := range w {
			if !same(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(want, got)
}
