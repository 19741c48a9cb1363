package eventstore

import "slices"

// Limits of a query.
const (
	// MaxItems is the most items of a query.
	MaxItems = 1000
	// MaxItemTypes is the most types of an item.
	MaxItemTypes = 1000
	// maxProbes is the most probes of a query: each type of an item counts as one,
	// and so does an item without types.
	maxProbes = 10_000
	// MaxQuery is the largest size of a query, in bytes, as it is sent to
	// PostgreSQL: the tags of an item are sent with each of its types.
	MaxQuery = 1 << 20
)

// Query selects the events that match any of its items. The zero value, without
// items, matches every event.
type Query struct {
	Items []Item
}

// Item matches an event that has any of the types and all of the tags. Without
// types it matches any type, without tags any tags, and the zero value every
// event.
type Item struct {
	Types []string
	Tags  []string
}

// Everything matches every event.
func Everything() Query { return Query{} }

// Tagged matches the events that have all of the tags.
func Tagged(tags ...string) Query { return Query{Items: []Item{{Tags: tags}}} }

// Typed matches the events that have any of the types.
func Typed(types ...string) Query { return Query{Items: []Item{{Types: types}}} }

// AnyOf matches the events that any of the queries matches.
func AnyOf(queries ...Query) Query {
	var all Query
	for _, q := range queries {
		if len(q.Items) == 0 {
			return Query{}
		}
		all.Items = append(all.Items, q.Items...)
	}
	return all
}

// Matches reports whether the query matches the event.
func (q Query) Matches(e Event) bool { return q.matches(e.Type, e.Tags) }

func (q *Query) matches(eventType string, tags []string) bool {
	if len(q.Items) == 0 {
		return true
	}
	for i := range q.Items {
		if q.Items[i].matches(eventType, tags) {
			return true
		}
	}
	return false
}

// everything reports whether the query matches every event.
func (q *Query) everything() bool {
	return len(q.Items) == 0 || slices.ContainsFunc(q.Items, func(item Item) bool { return len(item.Types)+len(item.Tags) == 0 })
}

func (item *Item) matches(eventType string, tags []string) bool {
	if len(item.Types) > 0 && !slices.Contains(item.Types, eventType) {
		return false
	}
	for _, tag := range item.Tags {
		if !slices.Contains(tags, tag) {
			return false
		}
	}
	return true
}

// clone returns a query that shares no slices with q.
func (q Query) clone() Query {
	items := slices.Clone(q.Items)
	for i := range items {
		items[i] = Item{Types: slices.Clone(items[i].Types), Tags: slices.Clone(items[i].Tags)}
	}
	return Query{Items: items}
}

// merged returns a query that matches the same events and shares no slices with q.
// It merges items with the same tags.
func (q Query) merged() Query {
	var all Query
next:
	for _, item := range q.Items {
		for i := range all.Items {
			into := &all.Items[i]
			if !slices.Equal(into.Tags, item.Tags) || len(into.Types)+len(item.Types) > MaxItemTypes {
				continue
			}
			if len(into.Types) == 0 || len(item.Types) == 0 {
				into.Types = nil
				continue next
			}
			for _, name := range item.Types {
				if !slices.Contains(into.Types, name) {
					into.Types = append(into.Types, name)
				}
			}
			continue next
		}
		all.Items = append(all.Items, Item{Types: slices.Clone(item.Types), Tags: slices.Clone(item.Tags)})
	}
	return all
}

// validate returns an InvalidError if the query exceeds a limit, or holds text that
// PostgreSQL cannot store. field is the name of the query in the error.
func (q *Query) validate(field string) error {
	if len(q.Items) > MaxItems {
		return invalid(field+".items", "%d, want at most %d", len(q.Items), MaxItems)
	}
	probes, bytes := 0, 0
	for i := range q.Items {
		item := &q.Items[i]
		probes += max(1, len(item.Types))
		if len(item.Types) > MaxItemTypes || probes > maxProbes {
			return invalidAt(field+".items", i, "types", "too many")
		}
		if len(item.Tags) > MaxTags {
			return invalidAt(field+".items", i, "tags", "too many, want at most 100")
		}
		for _, name := range item.Types {
			if problem := typeProblem(name); problem != "" {
				return invalidAt(field+".items", i, "types", problem)
			}
		}
		for _, tag := range item.Tags {
			if problem := tagProblem(tag); problem != "" {
				return invalidAt(field+".items", i, "tags", problem)
			}
		}
		if bytes += item.bytes(); bytes > MaxQuery {
			return invalidAt(field+".items", i, "tags", "the query is larger than 1 MiB, counting tags for each type of their item")
		}
	}
	return nil
}

// bytes is the approximate size of the item's probes.
func (item *Item) bytes() int {
	probe := 60
	for _, tag := range item.Tags {
		probe += 24 + len(tag)
	}
	n := probe * max(1, len(item.Types))
	for _, name := range item.Types {
		n += len(name)
	}
	return n
}

// hashes returns the hashes by which tailIndex looks up the item: those of its tags, or
// of its types if it has no tags.
func (item *Item) hashes() []int64 {
	if len(item.Tags) == 0 {
		all := make([]int64, len(item.Types))
		for i, name := range item.Types {
			all[i] = int64(typeHash(name))
		}
		return all
	}
	all := make([]int64, len(item.Tags))
	for i, tag := range item.Tags {
		all[i] = tagHash(tag)
	}
	return all
}

// hashed is a query with the precomputed hashes of its items.
type hashed struct {
	Query
	hashes  [][]int64
	lookups int // number of hashes in all, at least 1
}

func newHashed(q Query) hashed {
	h := hashed{Query: q, hashes: make([][]int64, len(q.Items))}
	for i := range q.Items {
		h.hashes[i] = q.Items[i].hashes()
		h.lookups += max(1, len(h.hashes[i]))
	}
	h.lookups = max(1, h.lookups)
	return h
}
