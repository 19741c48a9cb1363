package doctor

import "testing"

// TestStart: what would end a server at its start is an error.
func TestStart(t *testing.T) {
	t.Parallel()
	db := template.Open(t)
	d := on(t, db.URL, Config{})
	d.finds(t, "start", OK, "would start")
	exec(t, db.Pool, `UPDATE tidewire.history SET system = 1`, // as in a restored dump: a start begins a history
		`CREATE OR REPLACE FUNCTION tidewire.leap(ids regclass) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no leap'; END $$`)
	d.finds(t, "start", Error, "no leap")
}
