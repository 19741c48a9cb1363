// Package cli implements the tidewire command line, with one file for each
// command. The struct of a command holds its flags, their documentation and the
// parameters that a result records. This is the only package that reads the
// environment, chooses exit codes, and wires the other packages together.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

// Env is the part of the process's environment that a command may use.
type Env struct {
	Args    []string
	Getenv  func(string) string
	In      io.Reader
	Out     io.Writer // results
	Err     io.Writer // log, progress, errors
	Program string    // path of tidewire, which benchmarks start as the server under test; defaults to this program
}

// Exit codes. Scripts rely on them: they never change.
const (
	ExitOK         = 0
	ExitFailure    = 1  // something unexpected
	ExitUsage      = 2  // unknown command, mode or flag, bad value
	ExitInvalid    = 3  // a benchmark ran, and its result is not valid
	ExitListen     = 4  // the port is taken, or the address cannot be listened on
	ExitDatabase   = 5  // the database is unreachable (serve waits for it), refuses the login, is too old, or not Tidewire's
	ExitDataDir    = 6  // the data directory is unusable or in use
	ExitPostgreSQL = 7  // no PostgreSQL programs on this machine, and none could be fetched
	ExitThreshold  = 8  // a benchmark ran, its result is valid, and missed a --threshold
	ExitWarnings   = 9  // doctor found warnings, and no errors
	ExitErrors     = 10 // doctor found errors
)

// exitError gives an error its exit code. If err is nil, everything has been printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func exit(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// commands is the whole command line.
type commands struct {
	Serve     serveCmd     `cmd:"" help:"Run the server."`
	Config    configCmd    `cmd:"" help:"Print the settings that serve would use, and where each one comes from: a flag, the environment, the file, or the default."`
	Stream    streamCmd    `cmd:"" help:"Streams: append-only logs."`
	Queue     queueCmd     `cmd:"" help:"Queues: each message is delivered to one consumer."`
	Events    eventsCmd    `cmd:"" help:"Event stores: events with tags. An append can have a condition."`
	Console   consoleCmd   `cmd:"" help:"Open the web console of a running server in the browser. In closed mode it is signed in."`
	Keys      keysCmd      `cmd:"" help:"API keys: credentials of programs."`
	Schedule  scheduleCmd  `cmd:"" help:"Schedules: messages at times, by cron expressions or once."`
	Nodes     nodesCmd     `cmd:"" help:"List the servers of clusters."`
	DB        dbCmd        `cmd:"" name:"db" help:"Manage the private PostgreSQL and the database schema."`
	Doctor    doctorCmd    `cmd:"" help:"Check the database and recommend changes. It changes nothing itself."`
	Bench     benchCmd     `kong:"cmd,set='data_dir=',set='data_dir_help=Directory of the private PostgreSQL, which stays after the run. Default: a temporary directory, which is removed.',help='Measure, on this machine.'"`
	TestProxy testProxyCmd `cmd:"" name:"test-proxy" help:"Test a client: a proxy that breaks WebSocket connections at chosen messages."`
	Version   versionCmd   `cmd:"" help:"Print the version."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	Completion kongcompletion.Completion `cmd:"" help:"Generate shell completion."`
}

// process is the Env of the running command, with what all commands need.
type process struct {
	Env
	ctx   context.Context
	log   *slog.Logger
	rerun rerun // the benchmark that is running
	// settings holds the values of serve's flags that are not on the command line.
	settings *settings
	// changed has the flags whose values are not their defaults.
	changed map[string]bool
}

// helpShown ends parsing after kong has printed the help.
type helpShown struct{}

// Run runs the command that env.Args name and returns its exit code.
func Run(ctx context.Context, env Env) (code int) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(helpShown); !ok {
				panic(r)
			}
		}
	}()
	ctx, unwatch := watched(ctx, env)
	defer unwatch()
	var cmds commands
	settings := newSettings(env.Getenv)
	parser, err := newParser(env, &cmds, settings)
	if err != nil {
		fmt.Fprintln(env.Err, "tidewire:", err)
		return ExitFailure
	}
	if env.Getenv("COMP_LINE") != "" { // a shell asks how a line may go on
		kongcompletion.Register(parser, kongcompletion.WithExitFunc(func(int) { panic(helpShown{}) }))
	}
	kctx, err := parser.Parse(quickened(longFlags(helpWord(env.Args))))
	if settings.err != nil {
		fmt.Fprintln(env.Err, "tidewire:", settings.err)
		return ExitUsage
	}
	if err != nil {
		fmt.Fprintf(env.Err, "tidewire: %v (see %s --help)\n", err, commandOf(err))
		return ExitUsage
	}
	p := &process{Env: env, ctx: ctx, log: slog.New(slog.NewTextHandler(env.Err, nil)), rerun: rerunOf(kctx), settings: settings, changed: changedFlags(kctx)}
	if err := kctx.Run(p); err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintf(env.Err, "tidewire: %s\n", text)
		}
		var coded *exitError
		if errors.As(err, &coded) {
			return coded.code
		}
		return ExitFailure
	}
	return ExitOK
}

// newParser returns the parser of the command line.
func newParser(env Env, cmds *commands, settings *settings) (*kong.Kong, error) {
	return kong.New(cmds,
		kong.Name("tidewire"),
		kong.Description("Durable real-time messaging on the PostgreSQL you already run, and the workbench that measures it."),
		kong.Writers(env.Out, env.Err),
		kong.Exit(func(int) { panic(helpShown{}) }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"data_dir": defaultDataDir(env), "data_dir_help": "Directory of the private PostgreSQL. Default: TIDEWIRE_DATA_DIR, or " + defaultDataDir(env) + ".", "version": "tidewire " + version()},
		valueMappers(), kong.Resolvers(settings))
}

// commandOf returns the command whose arguments could not be parsed, as far as it is known.
func commandOf(err error) string {
	command := "tidewire"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		for _, at := range parse.Context.Path {
			if at.Command != nil {
				command += " " + at.Command.Name
			}
		}
	}
	return command
}

var singleDash = regexp.MustCompile(`^-[a-z][a-z0-9-]+(=.*)?$`)

// longFlags accepts -mode for --mode, as Go's own flag package does. No
// command has a cluster of one-letter flags that this could break.
func longFlags(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if out[i] = arg; singleDash.MatchString(arg) {
			out[i] = "-" + arg
		}
		if arg == "--" || arg == "psql" { // the rest belongs to another program
			copy(out[i:], args[i:])
			break
		}
	}
	return out
}

// helpWord accepts the word help instead of --help, before or after the name of a command.
func helpWord(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 2 && args[1] == "help":
		return []string{args[0], "--help"}
	}
	return args
}

type versionCmd struct{}

func (versionCmd) Run(p *process) error {
	_, err := fmt.Fprintln(p.Out, "tidewire", version())
	return err
}

// version returns the version of the module, or the commit that the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && !strings.HasPrefix(v, "(") {
		return v
	}
	return "devel"
}
