package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
)

// envPrefix begins the names of the environment variables that set flags of serve: TIDEWIRE_MAX_MEMORY is
// --max-memory.
const envPrefix = "TIDEWIRE_"

// settings holds the values of serve's flags that are not on the command line. The environment overrides the file. It
// implements kong.Resolver, and is used for one command line.
type settings struct {
	getenv func(string) string
	loaded bool
	err    error          // why the file cannot be used
	file   string         // its name, or ""
	values map[string]any // of the file
	from   map[string]string
}

// The sources of a value.
const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromDefault     = "default"
)

func newSettings(getenv func(string) string) *settings {
	return &settings{getenv: getenv, from: make(map[string]string)}
}

// warnOfReaders warns of a password in the file that other users of the machine can read.
func (s *settings) warnOfReaders(log *slog.Logger) {
	secret := func(name string) bool {
		address, _ := s.values[name].(string)
		return withoutPassword(address) != address || name == "nats" && withoutUsers(address) != address
	}
	if !secret("database-url") && !secret("read-url") && !secret("nats") {
		return
	}
	if info, err := os.Stat(s.file); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("other users of this machine can read the password in the file of settings: chmod 600 "+s.file, "mode", info.Mode().Perm())
	}
}

// Validate implements kong.Resolver.
func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (s *settings) Resolve(ctx *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	node := parent.Node()
	if node.Type != kong.CommandNode || node.Name != "serve" && node.Name != "config" || flag.Name == "help" || flag.Name == "config" {
		return nil, nil
	}
	if s.load(ctx, node); s.err != nil {
		return nil, nil // Run reports the error
	}
	if text := s.getenv(envName(flag.Name)); text != "" {
		s.from[flag.Name] = fromEnvironment
		return text, tryValue(envName(flag.Name), flag, text)
	}
	value, ok := s.values[flag.Name]
	if !ok {
		return nil, nil
	}
	s.from[flag.Name] = s.file
	value, err := flagValue(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.file, err)
	}
	return value, tryValue(s.file, flag, value)
}

// tryValue returns why a flag cannot have the value, and where the value comes from.
func tryValue(where string, flag *kong.Flag, value any) error {
	token := kong.Scan().PushTyped(value, kong.FlagValueToken)
	if err := flag.Parse(token, reflect.New(flag.Target.Type()).Elem()); err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ") // the name of the flag comes first
		return fmt.Errorf("%s: %s", where, why)
	}
	return nil
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flagValue converts a value of the file to its text on the command line.
func flagValue(value any) (any, error) {
	switch v := value.(type) {
	case []any:
		all := make([]any, len(v))
		for i := range v {
			one, err := flagValue(v[i])
			if err != nil {
				return nil, err
			}
			all[i] = one
		}
		return all, nil
	case string, bool, int64, float64:
		return fmt.Sprint(v), nil
	}
	return nil, errors.New("want a text, a number, true or false, or a list of texts")
}

// load reads the file, once. With --only lanes the file belongs to the lanes benchmark, which reads it
// later.
func (s *settings) load(ctx *kong.Context, node *kong.Node) {
	if s.loaded {
		return
	}
	s.loaded = true
	given := func(name string) (text string) {
		for _, f := range node.Flags {
			if f.Name == name {
				text = fmt.Sprint(ctx.FlagValue(f))
			}
		}
		if text == "" {
			text = s.getenv(envName(name))
		}
		return text
	}
	s.file = given("config")
	if s.file == "" || given("only") == "lanes" {
		return
	}
	s.err = s.read(node)
}

func (s *settings) read(node *kong.Node) error {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if err := toml.Unmarshal(text, &s.values); err != nil {
		return fmt.Errorf("%s: %w", s.file, tomlError(err))
	}
	return s.checkKeys(node)
}

// checkKeys rejects keys that are not flags of serve.
func (s *settings) checkKeys(node *kong.Node) error {
	var known, unknown []string
	for _, f := range node.Flags {
		if f.Name != "help" && f.Name != "config" {
			known = append(known, f.Name)
		}
	}
	for key := range s.values {
		if !slices.Contains(known, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("%s: unknown key %s: keys are the flags of tidewire serve without the dashes, such as max-memory", s.file, strings.Join(unknown, ", "))
}

// source returns where the value of a flag comes from.
func (s *settings) source(ctx *kong.Context, flag *kong.Flag) string {
	for _, p := range ctx.Path {
		if p.Flag == flag && !p.Resolved {
			return fromFlag
		}
	}
	if from, ok := s.from[flag.Name]; ok {
		return from
	}
	return fromDefault
}

// place returns where the value of a flag was written, if it has one: the name of the file, of the variable, or of the flag.
func (s *settings) place(flag string) string {
	switch from := s.from[flag]; from {
	case "":
		return "--" + flag
	case fromEnvironment:
		return envName(flag)
	default:
		return from
	}
}

// configCmd prints the settings that serve would use, in the format of the file that --config
// reads.
type configCmd struct{ serveCmd }

// Run is called by kong.
func (c *configCmd) Run(p *process, ctx *kong.Context) error {
	flags := slices.Clone(ctx.Selected().Flags)
	sort.Slice(flags, func(i, j int) bool { return flags[i].Name < flags[j].Name })
	for _, f := range flags {
		if f.Name == "help" || f.Name == "config" {
			continue
		}
		text, set, err := settingText(f)
		if err != nil {
			return err
		}
		source := p.settings.source(ctx, f)
		if !set {
			text, source = c.elsewhere(p, f.Name)
		}
		if text == "" && f.Default != "" { // an empty value in place of the default
			text, source = "''", p.settings.source(ctx, f)
		}
		if text == "" { // it has no default, or the default is determined later
			fmt.Fprintf(p.Out, "# %s =\n", f.Name)
			continue
		}
		fmt.Fprintf(p.Out, "%-60s # %s\n", f.Name+" = "+text, source)
	}
	if _, err := c.policyConfig(slog.New(slog.DiscardHandler), new(authDatabase)); err != nil {
		return err
	}
	if err := c.tlsFlags.check(); err != nil {
		return exit(ExitUsage, "%w", err)
	}
	return nil
}

// elsewhere returns the value of a setting that serve takes from somewhere else if neither a flag, its variable nor the file gives one,
// and its source.
func (c *configCmd) elsewhere(p *process, name string) (text, source string) {
	variable := ""
	switch name {
	case "port":
		if c.Only != "lanes" { // whose file may have one
			return "8080", fromDefault
		}
	case "database-url":
		variable = "DATABASE_URL"
	case "read-url":
		variable = "DATABASE_READ_URL"
	default:
		if limit := c.limitFlags.defaultOf(name, c.closed()); limit != "" {
			return limit, fromDefault
		}
	}
	address := p.Getenv(variable)
	if variable == "" || address == "" {
		return "", ""
	}
	return "'" + withoutPassword(address) + "'", "variable " + variable
}

// settingText returns the value of a flag as the file has it, without passwords, and whether there is
// one.
func settingText(f *kong.Flag) (text string, set bool, err error) {
	target := f.Target
	if target.Kind() == reflect.Pointer {
		if target.IsNil() {
			return "", false, nil
		}
		target = target.Elem()
	}
	value := tomlOf(target)
	if value == nil && f.HasDefault {
		value = zeroOf(target)
	}
	if value == nil {
		return "", false, nil
	}
	if address, ok := value.(string); ok && (strings.HasSuffix(f.Name, "-url") || f.Name == "nats") {
		if value = withoutPassword(address); f.Name == "nats" {
			value = withoutUsers(address)
		}
	}
	line, err := toml.Marshal(map[string]any{"v": value})
	if err != nil {
		return "", false, errors.Join(fmt.Errorf("--%s cannot be shown", f.Name), err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(line)), "v = "), true, nil
}

var passwordField = regexp.MustCompile(`password=('[^']*'|[^&\s]*)`)

var natsUser = regexp.MustCompile(`(^|,)([a-z]+://)?[^,]*@`)

// withoutUsers returns the addresses of NATS servers, separated by commas, without users, passwords and tokens.
func withoutUsers(addresses string) string {
	return natsUser.ReplaceAllString(addresses, "${1}${2}xxxxx@")
}

// withoutPassword returns the address of a database without its password.
func withoutPassword(address string) string {
	if u, err := url.Parse(address); err == nil && u.Scheme != "" {
		address = u.Redacted()
	}
	return passwordField.ReplaceAllString(address, "password=xxxxx")
}
