// Package doctor checks a PostgreSQL database on which Tidewire runs, as an experienced
// operator would, and says what to change. Each check is a separate
// read-only transaction; only that of the start writes, and is rolled back.
//
// A check becomes a note if the role lacks the rights for it, if it takes too long, or if
// it fails; the other checks continue.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Level says how bad a finding is.
type Level int

// Levels, from the best to the worst.
const (
	OK      Level = iota
	Note          // worth knowing; nothing has to be done
	Warning       // messages may be lost, or the server may stop working, if something else happens too
	Error         // Tidewire does not work, or messages are being lost
)

func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Note:
		return "note"
	case Warning:
		return "warning"
	}
	return "error"
}

// MarshalJSON writes the name.
func (l Level) MarshalJSON() ([]byte, error) { return json.Marshal(l.String()) }

// Finding is a result of a check. Each check has one or more.
type Finding struct {
	// Check is the name of the check, one of Names.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Text is one line.
	Text string `json:"text"`
	// Advice says what no command can do, or what to know before running one.
	Advice string `json:"advice,omitempty"`
	// Commands are for an administrator to run. Each is an SQL statement, unless it
	// begins with "tidewire".
	Commands []string `json:"commands,omitempty"`
}

// Report holds all findings, in the order of Names.
type Report struct {
	// Server is the version of PostgreSQL.
	Server   string `json:"server"`
	Database string `json:"database"`
	// Role is the role with whose rights the checks ran.
	Role string `json:"role"`
	// Worst is the worst level of the findings.
	Worst    Level     `json:"worst"`
	Findings []Finding `json:"findings"`
}

func (r *Report) add(findings ...Finding) {
	for _, f := range findings {
		r.Worst = max(r.Worst, f.Level)
		r.Findings = append(r.Findings, f)
	}
}

// Disk is the file system of the data directory.
type Disk struct {
	Free, Total int64 // bytes; Free is what PostgreSQL's account may use
}

// Config holds what Run cannot read from the database.
type Config struct {
	// Connections is how many connections one server of Tidewire opens. Defaults to 30.
	Connections int
	// Private says that the database is Tidewire's private one: findings that only
	// matter for other databases are left out. Defaults to false.
	Private bool
	// Disk is the disk to check. Defaults to nil: none.
	Disk *Disk
	// Table is the ingest table of the servers. Defaults to "": none serves ingest.
	Table string
	// Now is this machine's clock. Defaults to time.Now.
	Now func() time.Time
	// Timeout bounds each check. Defaults to 5 s.
	Timeout time.Duration
	// Total bounds all checks together: the checks that do not start in time become
	// notes. Defaults to 30 s.
	Total time.Duration

	limits *limits // set by tests
}

func (c Config) withDefaults() Config {
	if c.Connections == 0 {
		c.Connections = 30
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Total == 0 {
		c.Total = 30 * time.Second
	}
	if c.limits == nil {
		c.limits = &defaultLimits
	}
	return c
}

// Run checks the database of a pool's configuration, on at most three new connections. Its errors are
// those of connecting; everything else is in the report.
func Run(ctx context.Context, pool *pgxpool.Config, cfg Config) (Report, error) {
	d, err := open(ctx, pool, cfg.withDefaults())
	if err != nil {
		return Report{}, err
	}
	defer d.pool.Close()
	return d.run(ctx)
}

func (d *doctor) run(ctx context.Context) (r Report, err error) {
	until := time.Now().Add(d.cfg.Total)
	if errors.Is(d.pooling, ErrPooled) { // the checks are transactions, and need a session for each
		r.add(refusedPooler)
		return r, nil
	}
	first := d.probe(ctx)
	if first.Level == Error { // the other checks would be meaningless on such a server
		r.add(first)
		return r, nil
	}
	if err := d.within(ctx, d.lookAround); err != nil {
		return r, err
	}
	r.Server, r.Database, r.Role = d.version, d.database, d.role
	r.add(first)
	for _, c := range checks {
		if time.Now().After(until) {
			r.add(Finding{Check: c.name, Level: Note, Text: fmt.Sprintf("not checked: the checks before it took %v", d.cfg.Total)})
			continue
		}
		r.add(d.check(ctx, c)...)
	}
	return r, nil
}

// check runs one check.
func (d *doctor) check(ctx context.Context, c check) []Finding {
	var found findings
	err := d.within(ctx, func(ctx context.Context, s *session) error { return c.look(ctx, s, &found) })
	switch {
	case err != nil:
		found.list = append(found.list, d.failed(err))
	case len(found.list) == 0:
		found.ok("nothing found")
	}
	for i := range found.list {
		found.list[i].Check = c.name
	}
	return found.list
}

// failed returns the finding for a check that could not be run.
func (d *doctor) failed(err error) Finding {
	f := Finding{Level: Note, Text: "not checked: " + oneLine(err)}
	switch code := codeOf(err); {
	case code == "42501":
		f.Text = fmt.Sprintf("not checked: the role %s may not read it", d.role)
		f.Commands = []string{d.grantMonitor()}
	case code == "57014", errors.Is(err, context.DeadlineExceeded):
		f.Text = fmt.Sprintf("not checked: it took longer than %v", d.cfg.Timeout)
	}
	return f
}

// findings gathers what a check finds.
type findings struct{ list []Finding }

func (f *findings) add(level Level, text string, commands ...string) *Finding {
	f.list = append(f.list, Finding{Level: level, Text: text, Commands: commands})
	return &f.list[len(f.list)-1]
}

func (f *findings) ok(format string, args ...any) { f.add(OK, fmt.Sprintf(format, args...)) }
