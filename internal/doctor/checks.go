package doctor

import "context"

// check examines one thing. If it adds no finding, the result is ok.
type check struct {
	name string
	look func(ctx context.Context, s *session, f *findings) error
}

// checks are run in this order, after the check "server".
var checks = []check{
	{"version", lookVersion},
	{"primary", lookPrimary},
	{"pooler", lookPooler},
	{"hosts", lookHosts},
	{"tls", lookTLS},
	{"clock", lookClock},
	{"rights", lookRights},
	{"schema", lookSchema},
	{"start", lookStart},
	{"durability", lookDurability},
	{"sync", lookSync},
	{"standbys", lookStandbys},
	{"slots", lookSlots},
	{"archiving", lookArchiving},
	{"checksums", lookChecksums},
	{"connections", lookConnections},
	{"timeouts", lookTimeouts},
	{"settings", lookSettings},
	{"checkpoints", lookCheckpoints},
	{"transactions", lookTransactions},
	{"prepared", lookPrepared},
	{"snapshots", lookSnapshots},
	{"locks", lookLocks},
	{"vacuum", lookVacuum},
	{"wraparound", lookWraparound},
	{"indexes", lookIndexes},
	{"size", lookSize},
	{"disk", lookDisk},
	{"encoding", lookEncoding},
	{"collation", lookCollation},
}

// Names returns the names of all checks, in the order in which they run.
func Names() []string {
	names := []string{"server"}
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}
