package eventstore

import "slices"

// Limits of a query.
const (
	// MaxItems is the most items of a query.
	MaxItems = 1000
	// MaxItemTypes is the most types of an item.
	MaxItemTypes = 1000
	// maxProbes is the most that all items may ask for together: a type of an
	// item counts once, and so does an item without types.
	maxProbes = 10_000
)

// Query chooses events: those that match any of its items. The zero value,
// without items, matches every event.
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

// AnyOf matches what any of the queries matches.
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

// Matches reports whether the query chooses the event.
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

// validate names the field of the query, which is called field, that PostgreSQL
// could not compare.
func (q *Query) validate(field string) error {
	if len(q.Items) > MaxItems {
		return invalid(field+".items", "%d, want at most %d", len(q.Items), MaxItems)
	}
	probes := 0
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
	}
	return nil
}
