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

// identifySQL asks a server for its timeline, in hexadecimal, if it is a primary, and for the system identifier. Services
// that only resemble PostgreSQL lack some of these functions, and the role may lack the right to call them. Each statement
// is the fallback for the one before it, and asks for less.
var identifySQL = []string{
	`SELECT ` + timelineSQL + `, (SELECT system_identifier FROM pg_catalog.pg_control_system())`,
	`SELECT ` + timelineSQL + `, NULL`,
	`SELECT NULL, NULL`,
}

const timelineSQL = `CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END`

// pathSQL keeps functions of strangers out of the sessions of this program: a role that may make functions in a schema of the search
// path can make one that fits a call better than PostgreSQL's own, and it would run with the rights of this session.
const pathSQL = `SET search_path = pg_catalog, pg_temp; `

// identity is what a server says about itself.
type identity struct {
	timeline uint32 // 0 for a standby, or if unknown
	id       string // system identifier; "" if unknown
}

// identify sets the search_path of a session, and asks its server for its identity. An error that is a *pgconn.PgError proves that the server answers.
func (h *hosts) identify(ctx context.Context, conn *pgconn.PgConn) (identity, error) {
	h.mu.Lock()
	ask := h.ask
	h.mu.Unlock()
	for ; ; ask++ {
		results, err := conn.Exec(ctx, pathSQL+identifySQL[ask]).ReadAll()
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

// unknownThere reports whether a working server rejects the statement, because it lacks a function or a right.
func unknownThere(err error) bool {
	switch code := Code(err); {
	case code == "", strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "57"), strings.HasPrefix(code, "58"):
		return false
	}
	return true
}

func parseIdentity(results []*pgconn.Result) (identity, error) {
	if len(results) != 2 || len(results[1].Rows) != 1 || len(results[1].Rows[0]) != 2 {
		return identity{}, errors.New("pg: the server does not say which one it is")
	}
	row := results[1].Rows[0]
	timeline, err := strconv.ParseUint("0"+string(row[0]), 16, 32)
	return identity{uint32(timeline), string(row[1])}, err
}

// validate asks the server of a new connection for its identity, and returns why the server is not used, or nil.
func (h *hosts) validate(ctx context.Context, conn *pgconn.PgConn) error {
	who, err := h.identify(ctx, conn)
	if err != nil {
		return err
	}
	socket := socketOf(conn)
	if socket == nil { // the configuration's owner has wrapped the connection
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

// learn records the identity of a server, and returns why the server is not used, or nil. s is nil if it is unknown which
// server of the address it is.
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
	default: // a single host: there is a new cluster at the same address
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
		s.refused, s.loggedRefusal = nil, ""
		h.tell(slog.LevelInfo, "PostgreSQL server is used again", s, nil)
	}
	return nil
}

// refuse records why a server is not used, and logs each reason once. The caller holds mu.
func (h *hosts) refuse(s *server, why error) error {
	if s == nil {
		return why
	}
	s.refused = why
	if s.loggedRefusal != why.Error() {
		s.loggedRefusal = why.Error()
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
