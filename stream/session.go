package stream

import (
	"context"
	"fmt"
)

// connect opens the connection of the session that is held, and says how the
// statements of the writer's table are to be sent there. A table that this session
// writes to for the second time in a row is worth preparing them.
func (w *Writer) connect(ctx context.Context) (prepared bool, err error) {
	s := w.on.Session()
	if err := s.Connect(ctx); err != nil {
		return false, err
	}
	if s.Prepared(w.table.stmtTake) || !w.on.Again() || !s.HasRoom() {
		return s.Prepared(w.table.stmtTake), nil
	}
	err = s.Prepare(ctx, w.table.stmtTake, map[string]string{
		w.table.stmtTake: w.table.takePositions, w.table.stmtInsert: w.table.insertArray,
	})
	if err != nil {
		s.Close()
		return false, fmt.Errorf("prepare writer: %w", err)
	}
	return true, nil
}
