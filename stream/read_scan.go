package stream

import "github.com/jackc/pgx/v5"

// messageScanner scans the messages of one query. All its rows share the destinations,
// so that a message costs no allocation but those of its own fields.
type messageScanner struct {
	row  Message
	into []any
}

func newMessageScanner() *messageScanner {
	s := &messageScanner{}
	m := &s.row
	s.into = []any{&m.Position, &m.Key, (*[]byte)(&m.Headers), &m.Payload, &m.Time}
	return s
}

// scan returns the message of the row. pgx allocates its fields anew for each row.
func (s *messageScanner) scan(row pgx.CollectableRow) (Message, error) {
	s.row = Message{}
	err := row.Scan(s.into...)
	return s.row, err
}
