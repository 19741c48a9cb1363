// Package fairness measures how evenly many streams and event stores share one pool.
//
// BenchmarkFairness opens 10 streams with 100 partitions each and 100 event stores in one
// process, with a pool of the size that tidewire serve has. Each partition and each event store
// is a target: it has a writer that appends at times fixed in advance. A wait is the time from
// when an append was due to its answer. The benchmark reports the waits, and asserts no time.
//
//	make bench-fairness
//
// The variants:
//
//   - plain: nothing else goes on.
//   - flooded-partition, flooded-store: other callers append to one target as fast as possible.
//     Its waits do not count among the others'; they have a line of their own.
//   - held-partition, held-store: somebody else holds the lock of one target for the whole run.
//     The waits of this target do not count.
package fairness
