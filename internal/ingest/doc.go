// Package ingest writes messages that arrive one by one to PostgreSQL. It has
// five batching strategies, so that they can be compared:
//
//   - naive: one INSERT per message, which is awaited before the next message
//   - buffered: a bounded channel, and workers that read it, one INSERT each
//   - bulk: the same channel, multi-row INSERTs by size and time
//   - copy: group commit, each batch by COPY
//   - auto: group commit, each batch by array INSERT or COPY, depending on its
//     size
//
// Messages come from a [Source], one for each connection. A message is
// committed before its Source reports it as committed, with every strategy. The
// strategies differ in cost, and the first three do not guarantee the order.
package ingest
