// Package pg is the common PostgreSQL layer of all packages that use SQL. It
// opens pools that can be recognised in pg_stat_activity, classifies errors, gathers
// many callers into one commit (Group), lends connections to writers (Lender), watches
// several hosts for failovers (Open), and frees a lock whose holder is frozen (FreeLock).
package pg
