// Package stream is the log: messages in PostgreSQL with a position each.
//
// There are two ways in.
//
//   - [Writer] is the one that keeps the promises. It takes the stream's lock,
//     writes a whole [Batch] and commits, in one round trip. Positions become
//     visible in order: who has seen p will never find a new message below p.
//     A batch is stored once, whatever happens to the connection.
//   - [Inserter] is the textbook: INSERT, one row or many, from any number of
//     connections, no lock. Each row is stored once, but in no promised order.
//
// Both need the schema that package migrate makes.
package stream
