package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// identifySQL asks a server for the timeline, in hexadecimal, if it is a primary, and for the system identifier. Services
// that only look like PostgreSQL have not all of these functions, and a role may not be allowed to call them: the next
// statement asks for less.
var identifySQL = []string{
	`SELECT ` + timelineSQL + `, (SELECT system_identifier FROM pg_catalog.pg_control_system())`,
	`SELECT ` + timelineSQL + `, NULL`,
	`SELECT NULL, NULL`,
}

const timelineSQL = `CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END`

// identity is what a server says about itself.
type identity struct {
	timeline uint32 // 0 of a standby, or where it is unknown
	id       string // "" where it is unknown
}

// identify asks a server. An error that is a *pgconn.PgError is an answer, too.
func (h *hosts) identify(ctx context.Context, conn *pgconn.PgConn) (identity, error) {
	h.mu.Lock()
	ask := h.ask
	h.mu.Unlock()
	for ; ; ask++ {
		results, err := conn.Exec(ctx, identifySQL[ask]).ReadAll()
		if err == nil {
			return parseIdentity(results)
		}
		if !unknownThere(err) || ask == len(identifySQL)-1 {
			return identity{}, err
		}
		h.mu.Lock()
		h.ask = max(h.ask, ask+1)
		h.mu.Unlock()
	}
}

// unknownThere reports whether a server that works refuses a function.
func unknownThere(err error) bool {
	switch code := Code(err); {
	case code == "", strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "57"), strings.HasPrefix(code, "58"):
		return false
	}
	return true
}

func parseIdentity(results []*pgconn.Result) (identity, error) {
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 2 {
		return identity{}, errors.New("pg: the server does not say which one it is")
	}
	row := results[0].Rows[0]
	timeline, err := strconv.ParseUint("0"+string(row[0]), 16, 32)
	return identity{uint32(timeline), string(row[1])}, err
}

// validate asks a server that was just connected to which one it is, and returns why it is not used, or nil.
func (h *hosts) validate(ctx context.Context, conn *pgconn.PgConn) error {
	who, err := h.identify(ctx, conn)
	if err != nil {
		return err
	}
	socket := socketOf(conn)
	if socket == nil { // the owner of the configuration has wrapped it
		return h.learn(nil, who)
	}
	h.mu.Lock()
	socket.timeline = who.timeline
	s := h.byAddress(socket.address)
	if s == nil && !h.several() {
		s = h.servers[0]
	}
	h.mu.Unlock()
	if s != nil {
		h.note(s, time.Now(), nil)
	}
	return h.learn(s, who)
}

// learn takes note of what a server says, and returns why it is not used, or nil. The server is nil if it is not
// known which one that is.
func (h *hosts) learn(s *server, who identity) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case who.id == "" || who.id == h.id:
	case h.id == "":
		h.id = who.id
	case h.several():
		return h.refuse(s, fmt.Errorf("%w: its system identifier is %s, and that of the other servers of this address (%s) is %s. Nothing is written there. Take the server that does not belong to it out of the address. If this is the right one, name it alone, and restart Tidewire",
			ErrOtherCluster, who.id, h.hostNames(), h.id))
	default: // another one was made at the same address
		h.id, h.newest = who.id, 0
	}
	if who.timeline > 0 && who.timeline < h.newest {
		return h.refuse(s, fmt.Errorf("%w: its timeline is %d, and the primary has timeline %d. Nothing is written there, because the primary would not get it. Stop it, and make it a standby of the primary, with pg_rewind or from a backup. If this is the right one, name it alone in the address, and restart Tidewire",
			ErrFormerPrimary, who.timeline, h.newest))
	}
	if who.timeline > h.newest {
		if h.newest > 0 && s != nil {
			h.tell(slog.LevelWarn, "PostgreSQL has failed over: this server is the primary", s, nil)
		}
		h.newest = who.timeline
		h.endFormer()
	}
	if s != nil && s.refused != nil {
		s.refused, s.told = nil, ""
		h.tell(slog.LevelInfo, "PostgreSQL server is used again", s, nil)
	}
	return nil
}

// refuse notes why a server is not used, and tells it once. The caller holds mu.
func (h *hosts) refuse(s *server, why error) error {
	if s == nil {
		return why
	}
	s.refused = why
	if s.told != why.Error() {
		s.told = why.Error()
		h.tell(slog.LevelError, "PostgreSQL server is refused", s, why)
	}
	return fmt.Errorf("%s: %w", s, why)
}

// endFormer closes the connections to primaries whose timeline is lower than the newest. The caller holds mu.
func (h *hosts) endFormer() {
	for socket := range h.sockets {
		if socket.timeline > 0 && socket.timeline < h.newest {
			socket.end(fmt.Sprintf("%v: timeline %d, and the primary has timeline %d", ErrFormerPrimary, socket.timeline, h.newest))
		}
	}
}
