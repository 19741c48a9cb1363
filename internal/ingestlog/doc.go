// Package ingestlog is what ingest does with its table, public.messages by default, beside writing batches: the textbook INSERT ([Inserter]), and
// looking after its index ([Maintainer]). A Writer of package stream writes batches to it.
package ingestlog
