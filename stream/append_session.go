package stream

import (
	"context"
	"fmt"
)

// prepare prepares the statements of the writer's table on the borrowed session, if
// that pays, and reports whether they are prepared. It pays for a table that this
// session writes to for the second time in a row, and for the shared table, whose
// statements are the same for all streams.
func (w *batchWriter) prepare(ctx context.Context, shared bool) (prepared bool, err error) {
	s := w.on.Session()
	if shared {
		err = s.Prepare(ctx, stmtTakeShared, map[string]string{
			stmtTakeShared: takeSharedSQL, stmtRecordRequests: recordRequestsSQL, stmtInsertShared: insertSharedSQL,
		})
	} else {
		if s.Prepared(w.table.sql().stmtTake) || !w.on.Again() || !s.HasRoom() {
			return s.Prepared(w.table.sql().stmtTake), nil
		}
		err = s.Prepare(ctx, w.table.sql().stmtTake, map[string]string{
			w.table.sql().stmtTake: w.table.sql().takePositions, w.table.sql().stmtInsert: w.table.sql().insertArray,
		})
	}
	if err != nil {
		s.Close()
		return false, fmt.Errorf("prepare writer: %w", err)
	}
	return true, nil
}
