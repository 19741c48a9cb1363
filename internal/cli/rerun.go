package cli

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"

	"github.com/tidewire/tidewire/internal/bench"
)

// rerun is the content of a file that `tidewire bench run` runs: a benchmark with its flags.
type rerun struct {
	Command string         `toml:"command"` // queue, chat, …
	Args    []string       `toml:"args,omitempty"`
	Flags   map[string]any `toml:"flags"`
}

// notRerun lists flags that the file does not keep: where the result goes, and
// the database with its password.
var notRerun = []string{
	"help", "out", "quiet", "quick", "database-url", "host", "port", "db", "user", "password", "compare-database",
	"data-dir", "postgres", "pg-version", "pg-mirror",
}

// rerunOf records the running command with all its flags, since another version
// may have other defaults.
func rerunOf(ctx *kong.Context) rerun {
	r := rerun{Flags: make(map[string]any)}
	node := ctx.Selected()
	if node == nil {
		return r
	}
	r.Command = node.Name
	for _, arg := range node.Positional {
		if arg.Set || arg.HasDefault {
			r.Args = append(r.Args, argsOf(arg.Target)...)
		}
	}
	for _, f := range node.Flags {
		v := tomlOf(f.Target)
		if v == nil && f.HasDefault { // a 0 that the user gave instead of the default
			v = zeroOf(f.Target)
		}
		if v != nil && !slices.Contains(notRerun, f.Name) {
			r.Flags[f.Name] = v
		}
	}
	return r
}

// argsOf returns an argument as on the command line: one word, or several.
func argsOf(v reflect.Value) (words []string) {
	if v.Kind() != reflect.Slice {
		return []string{fmt.Sprint(v.Interface())}
	}
	for i := range v.Len() {
		words = append(words, fmt.Sprint(v.Index(i).Interface()))
	}
	return words
}

// zeroOf returns 0 as the file has it for a number, and nil for other values.
func zeroOf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		return 0
	}
	return nil
}

// tomlOf returns a flag's value as the file has it, or nil if it is not set.
func tomlOf(v reflect.Value) any {
	if v.Kind() == reflect.Slice {
		var all []any
		for i := range v.Len() {
			one := tomlOf(v.Index(i))
			if one == nil { // an empty text, or 0
				one = v.Index(i).Interface()
			}
			all = append(all, one)
		}
		if all == nil {
			return nil
		}
		return all
	}
	if v.IsZero() && v.Kind() != reflect.Bool {
		return nil
	}
	switch x := v.Interface().(type) {
	case percent:
		return fmt.Sprintf("%g%%", 100*float64(x))
	case fmt.Stringer:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.Float64:
		return v.Float()
	}
	return fmt.Sprint(v.Interface())
}

// write stores the file beside a result.
func (r rerun) write(result string) error {
	text, err := toml.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	path := bench.Beside(result, bench.EndingRerun)
	head := "# tidewire bench run FILE runs this again. The database is chosen by flags or the environment.\n"
	if err := os.WriteFile(path, append([]byte(head), text...), 0o644); err != nil {
		return fmt.Errorf("write parameters: %w", err)
	}
	return nil
}

// arguments returns the command line that the file stands for.
func (r rerun) arguments() ([]string, error) {
	if r.Command == "" || r.Command == "run" {
		return nil, fmt.Errorf("command is %q: want a scenario of tidewire bench list", r.Command)
	}
	args := append([]string{"bench", r.Command}, r.Args...)
	for _, name := range slices.Sorted(maps.Keys(r.Flags)) {
		switch v := r.Flags[name].(type) {
		case []any:
			for _, x := range v {
				args = append(args, "--"+name+"="+fmt.Sprint(x))
			}
		case bool:
			if v {
				args = append(args, "--"+name)
			}
		default:
			args = append(args, "--"+name+"="+fmt.Sprint(v))
		}
	}
	return args, nil
}

// commandLine returns the command line as typed, without passwords.
func commandLine(args []string) string {
	words := []string{"tidewire"}
	for i, arg := range args {
		if i > 0 && strings.TrimLeft(args[i-1], "-") == "password" {
			arg = "…"
		}
		name, value, assigned := strings.Cut(arg, "=")
		switch {
		case assigned && strings.TrimLeft(name, "-") == "password":
			arg = name + "=…"
		case assigned && strings.Contains(value, "://"):
			arg = name + "=" + redacted(value)
		default:
			arg = redacted(arg)
		}
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// redacted returns a URL without its password; other texts are returned unchanged.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return text
	}
	if _, has := u.User.Password(); !has {
		return text
	}
	u.User = url.User(u.User.Username())
	return u.String()
}

// quoted quotes a word for a shell.
func quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$&|;<>()*?[]#~%!{}`") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
