package eventstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// The model of the linearizability check is a set of taken tags: an append takes its tag
// if no event has this tag and, if it names a second tag, no event has that one.
type take struct{ tag, unless string }

// TestAppendIf_Linearizable: callers of two Stores race for a few tags. There has to be
// one order of all calls, each between its begin and its end, in which every answer is
// correct.
func TestAppendIf_Linearizable(t *testing.T) {
	t.Parallel()
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			taken, in := state.(string), input.(take)
			free := !slices.Contains([]byte(taken), in.tag[0]) && !slices.Contains([]byte(taken), in.unless[0])
			if output.(bool) != free {
				return false, taken
			}
			if free {
				sorted := []byte(taken + in.tag)
				slices.Sort(sorted)
				return true, string(sorted)
			}
			return true, taken
		},
	}
	db := setup(t)
	pools := []*pgxpool.Pool{db.Pool, poolOf(t, db.URL)}
	for seed := range 2 * pgtest.Seeds() {
		var stores []*eventstore.Store
		for _, pool := range pools {
			s, err := ensureStore(t.Context(), pool, fmt.Sprint("linear ", seed), eventstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, s)
		}
		var mu sync.Mutex
		var history []porcupine.Operation
		begun := time.Now()
		var racing sync.WaitGroup
		for c := range 6 {
			racing.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(c)))
				for range 8 {
					in := take{tag: string(rune('a' + random.IntN(6))), unless: string(rune('a' + random.IntN(6)))}
					call := time.Since(begun)
					got := attempt(t.Context(), stores[c%2], op{Conditional: true, Condition: eventstore.Condition{
						FailIfEventsMatch: eventstore.AnyOf(eventstore.Tagged(in.tag), eventstore.Tagged(in.unless)),
					}}, []eventstore.Event{event("Taken", in.tag)})
					if got.Err != "" {
						t.Error(got.Err)
					}
					mu.Lock()
					history = append(history, porcupine.Operation{
						ClientId: c, Input: in, Output: got.Conflict == 0, Call: int64(call), Return: int64(time.Since(begun)),
					})
					mu.Unlock()
				}
			})
		}
		racing.Wait()
		if !porcupine.CheckOperations(model, history) {
			t.Errorf("seed %d: no order of the calls explains %v", seed, history)
		}
		for _, s := range stores { // each keeps a connection
			s.Close(t.Context())
		}
	}
}
