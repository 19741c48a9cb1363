// Package ingest decides when messages that arrive one by one are written to
// PostgreSQL. Five strategies stand side by side so that they can be compared:
//
//   - naive: one INSERT per message, awaited before the next is looked at
//   - buffered: a bounded channel, and workers that read it, one INSERT each
//   - bulk: the same channel, multi-row INSERTs by size and time
//   - copy: group commit, each batch by COPY
//   - auto: group commit, each batch by array INSERT or COPY, as its size asks
//
// Messages come from a [Source], one for each connection. A message is
// committed before its Source says so, whatever the strategy; what differs is
// the cost, and that the first three promise no order.
package ingest
