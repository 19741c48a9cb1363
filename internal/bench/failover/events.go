package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// buyer buys seats: it reads whether a seat is free, and appends under the condition that it still is. Several buyers
// try the same seats in the same order.
type buyer struct {
	client
	hold time.Duration // how long some of them wait between the read and the append
}

func (b *buyer) run(ctx context.Context) {
	defer b.close()
	for seat := 0; b.rest(ctx, 1); {
		taken, err := b.try(ctx, seat)
		if taken {
			seat++
		}
		if err != nil && sleep(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

// try reports whether the seat is taken now, by any client.
func (b *buyer) try(ctx context.Context, seat int) (taken bool, err error) {
	query := fmt.Appendf(nil, `{"items":[{"types":["taken"],"tags":["seat:%d"]}]}`, seat)
	found, err := b.ask(ctx, `"type":"project","queries":[%s]`, query)
	if err != nil || len(found.Counts) != 1 || found.Counts[0] > 0 {
		return err == nil, err
	}
	if rand.IntN(10) == 0 {
		if err := sleep(ctx, time.Duration(rand.Int64N(int64(b.hold)+1))); err != nil {
			return false, err
		}
	}
	c, sent := contentOf(b.number, seat), time.Now()
	m, err := b.ask(ctx, `"type":"append","events":[{"type":"taken","tags":["seat:%d"],"data":%q}],"condition":%s`, seat, c, found.Condition)
	switch {
	case err == nil && len(m.Positions) == 1:
		b.ledger.Acknowledged(eventStore, c, m.Positions[0], sent)
		b.answerTimes.answered(kindAppend)
		return true, nil
	case m.Code == "history_lost":
		b.ledger.Count(countTold)
	case m.Code == "conflict":
		return false, nil // the next read shows that it is taken
	}
	return false, err
}

// eventStore is the name of the event store in the ledger.
const eventStore = "events"

// checkSeats checks in the events of the store that each seat was sold once.
func checkSeats(l *Ledger, held map[int64]content) {
	seats := make(map[content]content)
	for _, c := range held {
		seat := c & (1<<32 - 1)
		if other, twice := seats[seat]; twice {
			l.Break(PromiseSeats, "seat %d was sold to clients %d and %d", seat, c>>32, other>>32)
		}
		seats[seat] = c
	}
}
