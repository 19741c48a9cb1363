// Package pg holds what every package with SQL of its own needs of
// PostgreSQL: opening pools that can be recognised in pg_stat_activity, asking
// errors what they mean, gathering many callers into one commit, and freeing a
// lock whose holder froze.
package pg
