package gateway

import (
	"context"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
)

// goingStreams have groups that are read after the one who has asked is gone.
type goingStreams struct {
	engine.Streams
	gone func()
}

func (goingStreams) List(context.Context) ([]engine.StreamInfo, error) {
	return []engine.StreamInfo{{Name: "a"}, {Name: "b"}}, nil
}

func (f goingStreams) Groups(ctx context.Context, name, _ string, _ int) ([]engine.GroupInfo, error) {
	f.gone()
	return []engine.GroupInfo{{Name: "g", Lag: int64(name[0])}}, ctx.Err()
}

// TestLook_AskerGone: what one request looks at is for the next ones too, so it is looked at to its end when the client of that request goes away.
func TestLook_AskerGone(t *testing.T) {
	t.Parallel()
	ctx, gone := context.WithCancel(t.Context())
	worst, database, kept := new(worstLook), new(databaseLook), engine.Engine{Streams: goingStreams{gone: gone}}
	worst.look(ctx, kept, nil)
	if group, _ := worst.look(t.Context(), kept, nil); group == nil || group.Stream != "b" {
		t.Errorf("the worst group is %+v", group)
	}
	state := database.look(ctx, func(ctx context.Context) (engine.Database, error) { return engine.Database{}, ctx.Err() })
	if !state.Reachable {
		t.Error("PostgreSQL counts as away because a client is")
	}
}
