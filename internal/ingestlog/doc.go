// Package ingestlog accesses the table of package ingest, public.messages by default: with the textbook INSERT
// ([Inserter]), and for the upkeep of its index ([Maintainer]). A Writer of package stream writes the batches of group
// commit.
package ingestlog
