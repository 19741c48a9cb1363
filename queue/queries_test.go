package queue

import "testing"

// TestQueries_Prepare has PostgreSQL parse every statement on the migrated
// schema.
func TestQueries_Prepare(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, sql := range map[string]string{
		"beginSQL": beginSQL, "commitSQL": commitSQL, "ensureQueueSQL": ensureQueueSQL,
		"lookupQueueSQL": lookupQueueSQL, "listQueuesSQL": listQueuesSQL, "dropQueueSQL": dropQueueSQL, "ownsStreamSQL": ownsStreamSQL, "ownedStreamsSQL": ownedStreamsSQL,
		"writeSQL": writeSQL, "idleTimeoutSQL": idleTimeoutSQL, "rotateSQL": rotateSQL, "journalSizeSQL": journalSizeSQL,
		"sideStatsSQL": sideStatsSQL, "deadSQL": deadSQL, "redriveSQL": redriveSQL,
		"redriveAllSQL": redriveAllSQL, "purgeSideSQL": purgeSideSQL, "ensureFamilySQL": ensureFamilySQL, "lookupFamilySQL": lookupFamilySQL,
		"beginDropSQL": beginDropSQL, "droppingSQL": droppingSQL, "lastMemberSQL": lastMemberSQL, "endDropSQL": endDropSQL, "lookSQL": lookSQL,
		"purgeDeadSQL": purgeDeadSQL, "redriveFoundSQL": redriveFoundSQL, "purgeFoundSQL": purgeFoundSQL, "purgePositionsSQL": purgePositionsSQL, "alterSQL": alterSQL,
		"waitIfUnwrittenSQL": waitIfUnwrittenSQL,
	} {
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), "", sql, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
