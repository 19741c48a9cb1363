package pg

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrTable: Tidewire does not accept the name of a table.
var ErrTable = errors.New("pg: invalid table name")

// The sequence, index and view of a table have its name and a suffix. The limit of 50
// bytes keeps the longest of them within PostgreSQL's 63 bytes for an identifier.
var tableName = regexp.MustCompile(`^(?:([a-z_][a-z0-9_]{0,62})\.)?([a-z_][a-z0-9_]{0,49})$`)

// DefaultTable is where ingest stores messages if no table is named.
const DefaultTable = "messages"

// Relations that belong to a table of messages have its name and a suffix.
const (
	SuffixPositions = "_position_seq"
	SuffixIndex     = "_position_idx"
)

// IngestTable is ParseTable with DefaultTable for an empty name.
func IngestTable(name string) (Table, error) { return ParseTable(cmp.Or(name, DefaultTable)) }

// Table names a table that the operator chose.
type Table struct {
	Schema, Name string
}

// ParseTable parses the name of a table, such as "messages" or "app.messages". The
// name has lower-case letters, digits and underscores, at most 50 bytes. A schema and a
// dot may come before it; the default schema is public. The error is ErrTable.
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

// Quoted returns the quoted SQL name of the table or, with a suffix, of a relation that
// belongs to it.
func (t Table) Quoted(suffix string) string {
	return pgx.Identifier{t.Schema, t.Name + suffix}.Sanitize()
}

// String is the name with its schema.
func (t Table) String() string { return t.Schema + "." + t.Name }
