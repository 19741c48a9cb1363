// Package authcost measures what authentication costs a server: the CPU time of a `tidewire serve` process with tokens, rules and limits,
// beside one in open mode. It holds one benchmark only:
//
//	make bench-auth ROUNDS=10
package authcost
