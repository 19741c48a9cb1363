// Package orderstest tests an order service, in process and over the wire alike.
package orderstest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/clients/go/examples/orders"
)

// Run tests a service whose stream and queue are new. The item is one that no other test has.
func Run(t *testing.T, s *orders.Service, item string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stock(ctx, item, 3); err != nil {
		t.Fatal(err)
	}
	placed, soldOut := place(t, ctx, s, item, 5)
	if placed != 3 || soldOut != 2 {
		t.Errorf("of 5 orders of 3 items %d were placed, and %d were not", placed, soldOut)
	}
	seen := make(chan orders.Placed)
	go s.Watch(ctx, func(p orders.Placed) {
		select {
		case seen <- p:
		case <-ctx.Done():
		}
	})
	for range placed {
		select {
		case p := <-seen:
			if p.Item != item {
				t.Errorf("got %+v", p)
			}
		case <-ctx.Done():
			t.Fatal("an order is missing in the stream")
		}
	}
	mails(t, ctx, s, placed)
}

// place places orders of one item each, at the same time.
func place(t *testing.T, ctx context.Context, s *orders.Service, item string, n int) (placed, soldOut int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			err := s.Place(ctx, orders.Placed{Order: item + "/" + strconv.Itoa(i), Item: item, Quantity: 1}, fmt.Sprintf("c%d@example.com", i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				placed++
			case errors.Is(err, orders.ErrSoldOut):
				soldOut++
			default:
				t.Error(err)
			}
		}()
	}
	all.Wait()
	return placed, soldOut
}

// mails works until each order has its mail.
func mails(t *testing.T, ctx context.Context, s *orders.Service, n int) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan orders.Mail, n+1)
	done := make(chan error, 1)
	go func() {
		done <- s.SendMails(working, func(_ context.Context, m orders.Mail) error {
			sent <- m
			return nil
		})
	}()
	for range n {
		select {
		case <-sent:
		case err := <-done:
			t.Fatalf("the worker has ended: %v", err)
		case <-ctx.Done():
			t.Fatal("a mail is missing")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
