package doctor

import "context"

// check looks at one thing. Without a finding, all is well.
type check struct {
	name string
	look func(ctx context.Context, s *session, f *findings) error
}

// checks are made in this order, after that of the server itself.
var checks = []check{
	{"version", lookVersion},
	{"primary", lookPrimary},
	{"pooler", lookPooler},
	{"hosts", lookHosts},
	{"tls", lookTLS},
	{"clock", lookClock},
	{"rights", lookRights},
	{"schema", lookSchema},
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

// Names are the names of all checks, in their order.
func Names() []string {
	names := []string{"server"}
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}
