// Package orders is an order service with an event store: the code of the tutorial. It knows interfaces alone, so its tests run in process, and
// its production over the wire.
package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidewire/tidewire/clients/go"
)

// Placed is the event that an order was placed, and the message that other services read.
type Placed struct {
	Order    string `json:"order"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

// Mail is a job: a confirmation to the customer.
type Mail struct {
	To    string `json:"to"`
	Order string `json:"order"`
}

// Service takes orders.
type Service struct {
	Events tidewire.EventStore
	Orders tidewire.Log[Placed]
	Mails  tidewire.Jobs[Mail]
}

// Over returns a service that works over the wire.
func Over(c *tidewire.Client) *Service {
	return &Service{Events: c.Events(""), Orders: tidewire.StreamOf[Placed](c, "orders"), Mails: tidewire.QueueOf[Mail](c, "mails")}
}

// ErrSoldOut says that there are not so many of an item.
var ErrSoldOut = errors.New("sold out")

// Stock adds items.
func (s *Service) Stock(ctx context.Context, item string, quantity int) error {
	event, err := stockEvent("ItemStocked", Placed{Item: item, Quantity: quantity})
	if err != nil {
		return err
	}
	_, err = s.Events.Append(ctx, []tidewire.Event{event})
	return err
}

func stockEvent(kind string, p Placed) (tidewire.Event, error) {
	data, err := json.Marshal(p)
	return tidewire.Event{Type: kind, Tags: []string{"item:" + p.Item}, Data: data}, err
}

// Place places an order if there are enough of its item: two customers never get the last one.
func (s *Service) Place(ctx context.Context, p Placed, customer string) error {
	_, err := tidewire.Decide(ctx, s.Events, tidewire.Decision[int]{
		Query: tidewire.Tagged("item:" + p.Item),
		Fold:  left,
		Decide: func(left int) ([]tidewire.Event, error) {
			if left < p.Quantity {
				return nil, fmt.Errorf("%d of %s: %w", p.Quantity, p.Item, ErrSoldOut)
			}
			event, err := stockEvent("OrderPlaced", p)
			event.ID = p.Order
			return []tidewire.Event{event}, err
		},
		Attempts: 20,
	})
	if err != nil {
		return err
	}
	if _, err := s.Orders.Publish(ctx, p, tidewire.Key(p.Item)); err != nil {
		return err
	}
	_, err = s.Mails.Enqueue(ctx, Mail{To: customer, Order: p.Order})
	return err
}

// left folds the events of an item: how many there are.
func left(n int, e tidewire.Event) int {
	var p Placed
	if err := json.Unmarshal(e.Data, &p); err != nil {
		return n
	}
	if e.Type == "ItemStocked" {
		return n + p.Quantity
	}
	return n - p.Quantity
}

// SendMails works on the confirmations until ctx ends.
func (s *Service) SendMails(ctx context.Context, send func(context.Context, Mail) error) error {
	return s.Mails.Work(ctx, func(ctx context.Context, job *tidewire.Job[Mail]) error {
		if job.Value.To == "" {
			return tidewire.Dead("there is no address")
		}
		return send(ctx, job.Value)
	}, tidewire.Concurrency(4))
}

// Watch calls see with each order, from the first one on, until ctx ends.
func (s *Service) Watch(ctx context.Context, see func(Placed)) error {
	for m, err := range s.Orders.Messages(ctx, tidewire.FromStart()) {
		if err != nil {
			return err
		}
		see(m.Value)
	}
	return nil
}
