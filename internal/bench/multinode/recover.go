package multinode

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// faults causes the planned faults, one after the other.
func (r *run) faults(ctx context.Context) error {
	for i, s := range plan(r.cfg.Seed, r.cfg.Faults, r.cfg.Steps, r.cfg.Nodes, r.cfg.Longest) {
		told, present, err := r.fault(ctx, s)
		if err == nil {
			err = r.system.alive()
		}
		if err != nil {
			return fmt.Errorf("fault %d (%s): %w", i+1, s.describe(), err)
		}
		r.happened[s.fault]++
		r.cfg.Progress("fault %d of %d, %s: after the repair, all missing chats were told after %.2f s, and presence was right after %.2f s",
			i+1, r.cfg.Steps, s.describe(), told.Seconds(), present.Seconds())
	}
	return nil
}

// fault causes a fault, repairs it, and waits until the live room has recovered.
func (r *run) fault(ctx context.Context, s step) (told, present time.Duration, err error) {
	if err := sleep(ctx, s.calm); err != nil {
		return 0, 0, err
	}
	repaired := func(time.Time) {}
	if s.fault != Cut && s.fault != CutOneWay { // a node that reaches PostgreSQL keeps its deliveries
		repaired = r.jobs.fails(s.node, time.Now(), s.fault == Kill)
	}
	if err := r.system.inflict(s); err != nil {
		return 0, 0, err
	}
	waited := sleep(ctx, s.length)
	if err := errors.Join(waited, r.system.repair(context.WithoutCancel(ctx), s)); err != nil {
		return 0, 0, err
	}
	healed := time.Now()
	repaired(healed)
	r.load.recall(s.node)
	return r.recover(ctx, s.fault, healed)
}

// recover waits until every chat that was sent before the repair is received or told as missing, and presence is right. It
// breaks the promises about that if it takes too long.
func (r *run) recover(ctx context.Context, f Fault, healed time.Time) (told, present time.Duration, err error) {
	sent := r.room.snapshot()
	missing, wrong := r.room.open(sent), "not looked"
	lost := missing > 0
	for end := healed.Add(patience); (missing > 0 || wrong != "") && time.Now().Before(end); {
		if missing > 0 {
			if missing = r.room.open(sent); missing <= 0 {
				told = time.Since(healed)
			}
		}
		if wrong != "" {
			if wrong = r.room.wrong(); wrong == "" {
				present = time.Since(healed)
			}
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
	if missing > 0 {
		told = patience
	}
	if wrong != "" {
		present = patience
	}
	r.late(f, missing, told, wrong, present)
	if lost {
		r.told[f] = append(r.told[f], float64(told)/1e6)
	}
	r.present[f] = append(r.present[f], float64(present)/1e6)
	return told, present, nil
}

// late breaks the promises about the time after a repair if they were not kept.
func (r *run) late(f Fault, missing int, told time.Duration, wrong string, present time.Duration) {
	switch {
	case missing > 0:
		r.ledger.Break(PromiseRoomSoon, "after %s: %d chats are not accounted for %v after the repair", f, missing, patience)
	case told > r.cfg.ToldWithin:
		r.ledger.Break(PromiseRoomSoon, "after %s: %.2f s", f, told.Seconds())
	}
	switch {
	case wrong != "":
		r.ledger.Break(PromisePresence, "after %s: %v after the repair, %s", f, patience, wrong)
	case present > r.cfg.PresentWithin:
		r.ledger.Break(PromisePresence, "after %s: %.2f s", f, present.Seconds())
	}
}
