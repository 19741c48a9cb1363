package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// widest is the largest filter there can be, but for the values of its headers.
func widest(n int) string {
	var keys []string
	headers := make(map[string]string)
	for k := range 100 {
		keys = append(keys, fmt.Sprintf("%06d-%03d", n, k)+strings.Repeat("k", 1014))
	}
	for h := range 10 {
		headers[fmt.Sprint("h", h)] = strings.Repeat("v", 1000)
	}
	k, _ := json.Marshal(keys)
	h, _ := json.Marshal(headers)
	return fmt.Sprintf(`"keys":%s,"headers":%s`, k, h)
}

// TestAttack_Filters: large filters on many subscriptions count as memory until these end, which all of them do when memory is short, and others are served.
func TestAttack_Filters(t *testing.T) {
	t.Parallel()
	const filters, size = 20, 100 * 1024
	streams := newFakeStreams(t, "orders")
	mixed(streams, 500)
	account := budget.New(1 << 30)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}, Budget: account})
	c := connect(t, addr)
	for n := range filters {
		c.ask(fmt.Sprintf(`{"type":"subscribe","id":1,"stream":"orders","subscription":"%d","credits":1,%s}`, n, widest(n)), `{"type":"ok","id":1,"position":500}`)
	}
	if held := account.Stats().Held; held < filters*size {
		t.Errorf("%d filters of %d bytes count %d", filters, size, held)
	}
	good := connect(t, addr)
	good.ask(`{"type":"subscribe","id":1,"stream":"orders","after":0,"keys":["k1"]}`, `{"type":"ok","id":1,"position":0}`)
	if got, _ := good.filtered("orders", 500); len(got) != 100 {
		t.Errorf("%d messages came, want 100", len(got))
	}
	good.Abort()
	c.Abort()
	waitFor(t, func() bool { return account.Stats().Held == 0 }, "what nobody holds is still counted")
}

// TestAttack_FiltersWithoutMemory: filters for which there is no memory are refused or wait, or their connections end. One that is small is served.
func TestAttack_FiltersWithoutMemory(t *testing.T) {
	t.Parallel()
	const limit = 2 << 20
	streams := newFakeStreams(t, "orders")
	mixed(streams, 50)
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}, Budget: account})
	for range 4 {
		greedy := dial(t, "ws://"+addr+"/ws")
		go func() {
			for {
				if _, err := greedy.Read(); err != nil {
					return
				}
			}
		}()
		for n := range 10 {
			send(t, greedy, fmt.Sprintf(`{"type":"subscribe","id":1,"stream":"orders","subscription":"%d",%s}`, n, widest(n)))
		}
	}
	waitFor(t, func() bool { s := account.Stats(); return s.Evictions > 0 || s.Waits > 0 }, "the filters are not counted")
	good := connect(t, addr)
	good.ask(`{"type":"subscribe","id":1,"stream":"orders","after":0,"keys":["k1"]}`, `{"type":"ok","id":1,"position":0}`)
	if got, _ := good.filtered("orders", 50); len(got) != 10 {
		t.Errorf("%d messages came, want 10", len(got))
	}
}
