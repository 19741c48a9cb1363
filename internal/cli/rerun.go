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

// rerun is a benchmark as a file: what `tidewire bench run` runs.
type rerun struct {
	Command string         `toml:"command"` // queue, chat, …
	Args    []string       `toml:"args,omitempty"`
	Flags   map[string]any `toml:"flags"`
}

// notRerun are flags that a file does not keep: where a result goes, and which
// database it is, with its password.
var notRerun = []string{
	"help", "out", "quiet", "quick", "database-url", "host", "port", "db", "user", "password", "compare-database",
	"data-dir", "postgres", "pg-version", "pg-mirror",
}

// rerunOf takes down the command that is running, with all its flags: the
// defaults of another version may be others.
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
		if v == nil && f.HasDefault { // a 0 where 0 is not the default
			v = zeroOf(f.Target)
		}
		if v != nil && !slices.Contains(notRerun, f.Name) {
			r.Flags[f.Name] = v
		}
	}
	return r
}

// argsOf is an argument as the command line had it: one word, or several.
func argsOf(v reflect.Value) (words []string) {
	if v.Kind() != reflect.Slice {
		return []string{fmt.Sprint(v.Interface())}
	}
	for i := range v.Len() {
		words = append(words, fmt.Sprint(v.Index(i).Interface()))
	}
	return words
}

// zeroOf is a number's 0 as a file has it; nil for what is no number.
func zeroOf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		return 0
	}
	return nil
}

// tomlOf is a flag's value as a file has it; nil if it is not set.
func tomlOf(v reflect.Value) any {
	if v.Kind() == reflect.Slice {
		var all []any
		for i := range v.Len() {
			all = append(all, tomlOf(v.Index(i)))
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
	head := "# tidewire bench run FILE runs this again. The database is the one that flags or the environment say.\n"
	if err := os.WriteFile(path, append([]byte(head), text...), 0o644); err != nil {
		return fmt.Errorf("write parameters: %w", err)
	}
	return nil
}

// arguments are those of the command line that it stands for.
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

// commandLine is what was typed, without passwords.
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

// redacted is a URL without its password, or the text as it is.
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

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$&|;<>()*?[]#~%!{}`") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
