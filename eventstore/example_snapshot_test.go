package eventstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/tidewire/tidewire/eventstore"
)

// A snapshot of the balance of an account with very many events is kept in the
// database: a projection only reads the events since then.
func ExampleSnapshot() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()

	read := 0
	balance := eventstore.Projector[int]{
		Query: eventstore.Tagged("account:7"),
		Apply: func(balance int, e eventstore.Event) int {
			read++
			var amount int
			json.Unmarshal(e.Data, &amount)
			return balance + amount
		},
		Snapshot: &eventstore.Snapshot[int]{Name: "balance of account:7", Version: 1, Every: 100},
	}
	deposit := func(n int) {
		for range n {
			e := eventstore.Event{Type: "Deposited", Tags: []string{"account:7"}, Data: []byte("10"), JSON: true}
			if _, err := store.Append(ctx, e); err != nil {
				log.Print(err)
			}
		}
	}
	project := func() {
		read = 0
		account := balance.Projection()
		if _, err := store.Project(ctx, account); err != nil {
			log.Print(err)
		}
		fmt.Println(account.State, "by reading", read)
	}
	deposit(120)
	project()
	deposit(3)
	project()
	fmt.Println(store.VerifySnapshots(ctx, balance.Projection()))
	// Output:
	// 1200 by reading 120
	// 1230 by reading 3
	// <nil>
}

// A caller that got no answer repeats its request, perhaps on another process: the
// request is stored once.
func ExampleStore_AppendAs() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()

	request := eventstore.RequestID{Client: "till 4", Sequence: 17}
	for range 2 {
		at, err := store.AppendAs(ctx, request, eventstore.Event{Type: "Sold", Tags: []string{"item:9"}})
		fmt.Println(at.First, at.Duplicate, err)
	}
	// Output:
	// 1 false <nil>
	// 1 true <nil>
}
