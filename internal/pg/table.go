package pg

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrTable is what a table's name gets that Tidewire does not take.
var ErrTable = errors.New("pg: invalid table name")

// A table's sequence, index and view have its name and a suffix: with it they are
// as long as PostgreSQL's identifiers may be.
var tableName = regexp.MustCompile(`^(?:([a-z_][a-z0-9_]{0,62})\.)?([a-z_][a-z0-9_]{0,49})$`)

// DefaultTable is where ingest stores messages if no table is named.
const DefaultTable = "messages"

// Relations that belong to a table of messages have its name and a suffix.
const (
	SuffixPositions = "_position_seq"
	SuffixIndex     = "_position_idx"
)

// IngestTable is ParseTable, of the DefaultTable if there is no name.
func IngestTable(name string) (Table, error) { return ParseTable(cmp.Or(name, DefaultTable)) }

// Table names a table that the operator chose.
type Table struct {
	Schema, Name string
}

// ParseTable returns the table of that name, "messages" or "app.messages":
// lower-case letters, digits and underscores, at most 50 bytes, and before a dot
// the schema, which is public where there is none. The error is ErrTable.
func ParseTable(name string) (Table, error) {
	parts := tableName.FindStringSubmatch(name)
	if parts == nil {
		return Table{}, fmt.Errorf("%w %q: want lower-case letters, digits and underscores, at most 50, and perhaps a schema and a dot before them", ErrTable, name)
	}
	t := Table{parts[1], parts[2]}
	if t.Schema == "" {
		t.Schema = "public"
	}
	if strings.HasPrefix(t.Schema, "pg_") || t.Schema == "information_schema" {
		return Table{}, fmt.Errorf("%w %q: the schema is PostgreSQL's own; name another", ErrTable, name)
	}
	return t, nil
}

// Quoted returns the name of the table, or with a suffix of what belongs to it, as
// SQL takes it.
func (t Table) Quoted(suffix string) string {
	return pgx.Identifier{t.Schema, t.Name + suffix}.Sanitize()
}

// String is the name with its schema.
func (t Table) String() string { return t.Schema + "." + t.Name }
