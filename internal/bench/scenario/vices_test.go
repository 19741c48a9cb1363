package scenario

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/internal/faulty"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// eachVice runs a test for each vice in parallel; a short run has two of them.
func eachVice(t *testing.T, test func(t *testing.T, vice faulty.Vice)) {
	t.Helper()
	for _, vice := range faulty.Vices {
		t.Run(vice.String(), func(t *testing.T) {
			if testing.Short() && vice != faulty.Honest && vice != faulty.Lossy {
				t.Skip("a short run has an honest server and one that loses")
			}
			t.Parallel()
			test(t, vice)
		})
	}
}

// judged checks that a result is invalid if its server's vice is one of noticed,
// and valid otherwise; that its raw data is kept; and that slowness shows in the
// latencies, whose metrics have the prefix.
func judged(t *testing.T, result *bench.Result, row, prefix string, vice faulty.Vice, noticed ...faulty.Vice) {
	t.Helper()
	result.Finish()
	if want := !slices.Contains(noticed, vice); result.Valid != want {
		t.Errorf("valid %v, want %v: %+v", result.Valid, want, result.Checks)
	}
	r := result.Row(row)
	if r == nil {
		t.Fatalf("no row %q in %+v", row, result.Rows)
	}
	if p50 := r.Metrics[prefix+"latency_p50_ms"]; vice == faulty.Slow && p50 < faulty.Delay.Seconds()*1000/2 {
		t.Errorf("the median is %v ms, of a server that takes %v", p50, faulty.Delay)
	}
	kept := slices.ContainsFunc(result.Recording.AllLatencies(), func(l bench.Latencies) bool {
		return l.Row == row && l.Trial == 0 && l.Prefix == prefix && l.Count() > 0
	})
	// A machine with no time left may have read nothing in the time.
	if rate, has := r.Metrics["messages_per_second"]; !kept && (!has || rate > 0) {
		t.Errorf("the latencies of row %q are not recorded", row)
	}
}

var spoiling = []faulty.Vice{faulty.Lossy, faulty.Duplicating, faulty.Reordering}

func TestVices_Echo(t *testing.T) {
	t.Parallel()
	eachVice(t, func(t *testing.T, vice faulty.Vice) {
		server := faulty.Echo(vice)
		defer server.Close()
		result := bench.NewResult("echo", nil)
		err := Echo(t.Context(), EchoConfig{
			Targets: []Target{{Name: "one", URL: server.URL}}, Clients: 2, Messages: 400, Payload: 32, Window: 20, Repeat: 1, Progress: t.Logf,
		}, result)
		if slices.Contains(spoiling, vice) {
			if err == nil {
				t.Error("no error: answers come in the order of the messages, each once")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		judged(t, result, "one", "", vice)
		if result.Row("one").Limiter == "" {
			t.Error("nothing limits the row")
		}
	})
}

func TestVices_Lanes(t *testing.T) {
	t.Parallel()
	eachVice(t, func(t *testing.T, vice faulty.Vice) {
		const dummy = 500
		server := faulty.Lanes(vice, dummy)
		defer server.Close()
		cell := LanesCell{RequestEvery: 2 * time.Millisecond, Requests: 200, DummySize: dummy, DummyEvery: time.Hour}
		result := bench.NewResult("lanes", nil)
		err := Lanes(t.Context(), LanesConfig{
			URL: server.URL, Variants: []string{"plain"}, Cells: []LanesCell{cell}, Repeat: 1, Progress: t.Logf,
		}, result)
		if err != nil {
			t.Fatal(err)
		}
		row := "plain: " + cell.String()
		judged(t, result, row, "", vice, spoiling...)
		if m := result.Row(row).Metrics; m["generator_late_p99_ms"] == 0 || m["sent"] != 200 {
			t.Errorf("%v", m)
		}
	})
}

func TestVices_Chat(t *testing.T) {
	t.Parallel()
	eachVice(t, func(t *testing.T, vice faulty.Vice) { chatVice(t, vice, true) })
}

// TestVices_ChatOfAContender: what another server loses is its result, and not a fault of the run.
func TestVices_ChatOfAContender(t *testing.T) {
	t.Parallel()
	chatVice(t, faulty.Lossy, false)
}

func chatVice(t *testing.T, vice faulty.Vice, own bool) {
	t.Helper()
	server := faulty.Chat(vice)
	defer server.Close()
	result := bench.NewResult("chat-load", nil)
	err := Chat(t.Context(), ChatConfig{
		Targets: []Target{{Name: "one", URL: server.URL, Own: own, Labels: map[string]string{"profile": "minimal"}}}, Repeat: 1, Scale: 1, Share: 1,
		Custom: &ChatLoad{Clients: 6, Rate: 15, Payload: 128, Hold: 2 * time.Second}, Progress: t.Logf,
	}, result)
	if err != nil {
		t.Fatal(err)
	}
	result.Finish()
	if want := !own || !slices.Contains(spoiling, vice); result.Valid != want {
		t.Errorf("valid %v, want %v: %+v", result.Valid, want, result.Checks)
	}
	row := result.Row("one")
	m := row.Metrics
	if got := []bool{m["lost"] > 0, m["drop_rate"] > 0, m["duplicated"] > 0, m["reordered"] > 0}; m["expected"] == 0 ||
		!slices.Equal(got, []bool{vice == faulty.Lossy, vice == faulty.Lossy, vice == faulty.Duplicating, vice == faulty.Reordering}) {
		t.Errorf("lost, dropped, duplicated, reordered: %v", got)
	}
	if m["received"]+m["lost"] < m["expected"] || m["offered"] != m["sent"]+m["unsent"] {
		t.Errorf("%v", m)
	}
	if row.Limiter == "" || row.Labels["profile"] != "minimal" || len(result.Recording.AllLatencies()) != 2 {
		t.Errorf("limited by %q, labels %v, %d latencies", row.Limiter, row.Labels, len(result.Recording.AllLatencies()))
	}
	ticks := result.Recording.AllTicks()
	if !slices.ContainsFunc(ticks, func(t bench.Tick) bool {
		return t.Row == "one" && t.Metrics["deliveries_per_second"] > 0 && t.Metrics["latency_p50_ms"] > 0
	}) {
		t.Errorf("ticks %+v", ticks)
	}
	if vice == faulty.Slow && m["latency_p50_ms"] < faulty.Delay.Seconds()*1000 {
		t.Errorf("the median is %v ms, of a server that takes %v", m["latency_p50_ms"], faulty.Delay)
	}
}

// TestVices_Ingest uses a server that acknowledges correctly, and stores wrongly.
func TestVices_Ingest(t *testing.T) {
	t.Parallel()
	eachVice(t, func(t *testing.T, vice faulty.Vice) {
		result := bench.NewResult("ingest", nil)
		storing(t, "auto", vice, result)
		judged(t, result, "auto", "", vice, spoiling...)
		row := result.Row("auto")
		if row.Limiter == "" || row.Metrics["lost"] > 0 != (vice == faulty.Lossy) || row.Metrics["reordered"] > 0 != (vice == faulty.Reordering) {
			t.Errorf("limiter %q, %v", row.Limiter, row.Metrics)
		}
		if ticks := result.Recording.AllTicks(); vice == faulty.Slow && len(ticks) == 0 {
			t.Error("a run of more than a second has no ticks")
		}
	})
	t.Run("the textbook strategies promise no order", func(t *testing.T) {
		t.Parallel()
		result := bench.NewResult("ingest", nil)
		storing(t, "bulk", faulty.Reordering, result)
		judged(t, result, "bulk", "", faulty.Reordering)
		if result.Row("bulk").Metrics["reordered"] == 0 {
			t.Error("the order is not looked at")
		}
	})
}

// storing measures a mode by a server that stores with the vice.
func storing(t *testing.T, mode string, vice faulty.Vice, result *bench.Result) {
	t.Helper()
	db := pgtest.Open(t)
	server := faulty.Ingest(min(vice, faulty.Slow), stores(t, db, vice))
	t.Cleanup(server.Close)
	if _, err := db.Pool.Exec(t.Context(), messagesSQL); err != nil {
		t.Fatal(err)
	}
	err := Ingest(t.Context(), IngestConfig{
		Clients: 2, Messages: 200, Payload: 32, Modes: []string{mode}, Repeat: 1, ClosedLoop: true, Pool: db.Pool,
		Start:    func(ctx context.Context, _ string) (*ServerProcess, error) { return stand(ctx, server) },
		Describe: func(mode string) string { return mode }, Progress: t.Logf,
	}, result)
	if err != nil {
		t.Fatal(err)
	}
}

const messagesSQL = `
CREATE TABLE public.messages (position bigint NOT NULL, payload bytea NOT NULL, created_at timestamptz NOT NULL DEFAULT now())`

// stores inserts messages with the vice.
func stores(t *testing.T, db pgtest.DB, vice faulty.Vice) func([][]byte) {
	var position atomic.Int64
	return func(messages [][]byte) {
		rows := vice.Rows(messages)
		last := position.Add(int64(len(rows)))
		_, err := db.Pool.Exec(context.Background(), `
INSERT INTO public.messages (position, payload)
SELECT $1::bigint + n, p FROM unnest($2::bytea[]) WITH ORDINALITY AS t (p, n)`, last-int64(len(rows)), rows)
		if err != nil {
			t.Errorf("store: %v", err)
		}
	}
}

// stand returns an idle process that stands for a server.
func stand(ctx context.Context, server *faulty.Server) (*ServerProcess, error) {
	return StartServer(ctx, nil, nil, "sh", "-c",
		`trap 'exit 0' TERM; echo "listening on :`+server.Port()+`"; while :; do sleep 0.1; done`)
}
