package scenario

import (
	"context"
	"errors"
	"slices"
)

// workers returns the worker processes, the readers last.
func (r *queueRun) workers() (all []*workerProcess) {
	for _, p := range []*workerProcess{r.writers, r.readers} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// startWorkers starts the server (if there is one), the readers, and the writers.
func (r *queueRun) startWorkers(ctx context.Context) (err error) {
	if r.cfg.Serve != nil {
		if r.server, err = r.cfg.Serve(ctx); err != nil {
			return err
		}
		r.cfg.Server = r.server.URL("/ws")
	}
	for _, part := range []struct {
		role    string
		process **workerProcess
	}{{"readers", &r.readers}, {"writers", &r.writers}} {
		if part.role == "readers" && r.cfg.publishOnly() {
			continue
		}
		cfg := WorkerConfig{Role: part.role, Database: r.cfg.Database, QueueLoad: r.cfg.QueueLoad}
		if *part.process, err = startWorker(ctx, r.cfg.Part(), cfg); err != nil {
			return err
		}
	}
	return nil
}

func (r *queueRun) stopParts() (err error) {
	for _, p := range r.workers() {
		err = errors.Join(err, p.stop())
	}
	if r.server != nil {
		err = errors.Join(err, r.server.Stop())
	}
	return err
}

// order sends an order to the readers and then to the writers.
func (r *queueRun) order(do string) (err error) {
	for _, p := range slices.Backward(r.workers()) {
		err = errors.Join(err, p.order(order{Do: do}))
	}
	return err
}
