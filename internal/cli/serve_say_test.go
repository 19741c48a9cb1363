package cli_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// sqlState is the SQLSTATE of an error, or "".
func sqlState(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Code
	}
	return ""
}

// TestSay: a chat of an SQL transaction reaches the members on all servers when that commits, in stored rooms and in others, and a stored room keeps it.
func TestSay(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	flags := []string{"--database-url", db.URL, "--stored-rooms", "kept", "--cluster", "tides", "--cluster-listen", "127.0.0.1:0"}
	var members []*chatReader
	for range 2 {
		p := serve(t, flags...)
		m := &chatReader{t: t, conn: chatDial(t, p.Addr)}
		say(m.conn, `{"type":"join","room":"kept","id":1}`)
		m.next()
		say(m.conn, `{"type":"join","room":"loose","id":1}`)
		m.next()
		members = append(members, m)
	}
	tell := func(level pgx.TxIsoLevel, commit bool, chats ...string) {
		t.Helper()
		tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		for _, chat := range chats {
			room, text, _ := strings.Cut(chat, " ")
			if _, err := tx.Exec(t.Context(), `SELECT tidewire.say($1, $2)`, room, text); err != nil {
				t.Fatal(err)
			}
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for n, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		tell(level, false, `kept {"text":"not said"}`, `loose {"text":"not said"}`)
		tell(level, true, fmt.Sprintf(`kept {"text":"%d","id":7,"client":"c","sequence":{},"more":[1.50,"<é>"],"user":"sql"}`, n), fmt.Sprintf(`loose {"text":"%d","type":"chat","room":"loose"}`, n))
		for _, m := range members {
			got := []string{m.steady(), m.steady()} // two rooms have no common order
			slices.Sort(got)
			want := []string{
				fmt.Sprintf(`{"type":"chat","room":"kept","more": [1.50, "<é>"], "text": "%d", "user": "sql","time":"T","position":N}`, n),
				fmt.Sprintf(`{"type":"chat","room":"loose","text": "%d","time":"T"}`, n),
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	say(members[0].conn, `{"type":"leave","room":"kept","id":2}`)
	members[0].next()
	say(members[0].conn, `{"type":"join","room":"kept","history":10,"id":3}`)
	for n := range 3 {
		if got := members[0].next(); !strings.Contains(got, fmt.Sprintf(`"text": "%d"`, n)) {
			t.Errorf("the history has %s", got)
		}
	}
}

var chatTimes = regexp.MustCompile(`"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"(,"position":\d+)?}$`)

// steady is next without the values of time and position, which differ from run to run.
func (r *chatReader) steady() string {
	r.t.Helper()
	text := r.next()
	found := chatTimes.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	text = strings.TrimSuffix(text, found[0]) + `"time":"T"`
	if found[1] != "" {
		text += `,"position":N`
	}
	return text + "}"
}

// TestSay_Refuses what no server would have taken, and what members could read in different ways.
func TestSay_Refuses(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	tell := func(room any, chat any) error {
		_, err := db.Pool.Exec(t.Context(), `SELECT tidewire.say($1, $2)`, room, chat)
		return err
	}
	p := serve(t, "--database-url", db.URL)
	if err := tell("kept", `{"text":"x"}`); sqlState(err) != "TW003" {
		t.Errorf("before a server has stored rooms: %v", err)
	}
	p.Stop(t)
	p = serve(t, "--database-url", db.URL, "--stored-rooms", "kept")
	for chat, says := range map[string]string{
		`[]`: "JSON object", `"x"`: "JSON object", `null`: "JSON object", `{}`: "text", `{"text":7}`: "text", `{"text":null}`: "text",
		`{"text":"x","type":"gap"}`: "type", `{"text":"x","type":7}`: "type", `{"text":"x","room":"other"}`: "room", `{"text":"x","room":["kept"]}`: "room",
		`{"text":"x","user":7}`: "user", `{"text":"x","user":"` + strings.Repeat("é", 65) + `"}`: "user", `{"text":"x","position":null}`: "position", `{"text":"x","time":1}`: "time",
		`{"text":"x","Room":"kept"}`: "spelled", `{"text":"x","u\u017fer":"eve"}`: "spelled", `{"text":"x","POSITION":1}`: "spelled", `{"text":"x","ID":1}`: "spelled",
		`{"text":"x","after":"y"}`: "after", `{"text":"x","on_lag":"gap"}`: "on_lag", `{"text":"x","batch":5}`: "batch", `{"text":"` + strings.Repeat("x", 1<<20) + `"}`: "1048576",
	} {
		if err := tell("kept", chat); sqlState(err) != "TW004" || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80s: %v", chat, err)
		}
	}
	for _, room := range []any{"", nil, strings.Repeat("é", 65)} {
		if err := tell(room, `{"text":"x"}`); sqlState(err) != "TW004" {
			t.Errorf("room %v: %v", room, err)
		}
	}
	if err := tell("kept", nil); sqlState(err) != "TW004" {
		t.Errorf("no chat: %v", err)
	}
	// Every key that SQL takes is one that the server takes.
	for _, chat := range []string{`{"text":"x","":1,"ident":2,"texts":3,"tıme":4,"\\u0000":5}`, `{"text":"x","n":1e300,"deep":[[[[[{}]]]]]}`} {
		if err := tell("kept", chat); err != nil {
			t.Errorf("%s: %v", chat, err)
		}
	}
	if got := joined(t, p.Addr, "kept", `"after":0`); len(strings.Fields(got)) != 2 {
		t.Errorf("stored are %s", got)
	}
	var foreign bool
	if err := db.Pool.QueryRow(t.Context(), `SELECT has_function_privilege('public', 'tidewire.say(text, jsonb)', 'EXECUTE')`).Scan(&foreign); err != nil || foreign {
		t.Errorf("everybody may call it: %v, %v", foreign, err)
	}
}
