package eventstore

// tailIndex is an inverted index of some events in memory: their types and tags, and a
// hash table of both. It only grows; reset empties it and keeps its memory.
type tailIndex struct {
	events []fact
	tags   []string // of all events
	keys   []factKey
	chains []chain // of keys, by hash
	bytes  int     // approximate size of the strings and their headers
}

type chain struct {
	head   int32 // index + 1 of its last key
	length int32
}

type fact struct {
	eventType   string // "" for an event that was not stored
	first, last int    // in tags
}

type factKey struct {
	hash  int64
	event int32
	next  int32 // index + 1
}

func (f *tailIndex) reset() {
	clear(f.events)
	clear(f.tags)
	f.events, f.tags, f.keys = f.events[:0], f.tags[:0], f.keys[:0]
	f.chains = f.chains[:0]
	f.bytes = 0
}

// add appends an event; the caller adds its keys.
func (f *tailIndex) add(eventType string, tags []string) {
	first := len(f.tags)
	f.tags = append(f.tags, tags...)
	f.events = append(f.events, fact{eventType, first, len(f.tags)})
	f.bytes += 64 + len(eventType)
	for _, tag := range tags {
		f.bytes += 48 + len(tag)
	}
}

// key adds a hash of the last event. find sees it only after index.
func (f *tailIndex) key(hash int64) {
	f.keys = append(f.keys, factKey{hash: hash, event: int32(len(f.events) - 1)})
}

// join appends the events of another tailIndex, and indexes them.
func (f *tailIndex) join(other *tailIndex) {
	event, tag, at := len(f.events), len(f.tags), len(f.keys)
	for _, e := range other.events {
		f.events = append(f.events, fact{e.eventType, tag + e.first, tag + e.last})
	}
	f.tags = append(f.tags, other.tags...)
	f.bytes += other.bytes
	for _, k := range other.keys {
		f.keys = append(f.keys, factKey{hash: k.hash, event: k.event + int32(event)})
	}
	if len(f.keys) > len(f.chains) {
		f.rehash()
		return
	}
	f.index(at)
}

func (f *tailIndex) rehash() {
	size := max(64, len(f.chains))
	for size < 2*len(f.keys) {
		size *= 2
	}
	if cap(f.chains) < size {
		f.chains = make([]chain, size)
	}
	f.chains = f.chains[:size]
	clear(f.chains)
	f.index(0)
}

// index adds the keys from at on to their chains. Each chain has the last events first.
func (f *tailIndex) index(at int) {
	for i := at; i < len(f.keys); i++ {
		c := f.chain(f.keys[i].hash)
		f.keys[i].next = c.head
		c.head = int32(i + 1)
		c.length++
	}
}

func (f *tailIndex) chain(hash int64) *chain {
	return &f.chains[uint64(hash)&uint64(len(f.chains)-1)]
}

// find returns the index of the first event, at or after index from, that the query
// matches, or -1.
func (f *tailIndex) find(q *hashed, from int) int {
	if from >= len(f.events) {
		return -1
	}
	if len(q.Items) == 0 {
		return f.scan(&Item{}, from, -1)
	}
	first := -1
	for i := range q.Items {
		first = f.findItem(&q.Items[i], q.hashes[i], from, first)
	}
	return first
}

// findItem returns the first event that the item matches, or known if that is earlier.
// Of several tags it looks up the one with the shortest chain.
func (f *tailIndex) findItem(item *Item, hashes []int64, from, known int) int {
	if len(item.Tags) == 0 && len(item.Types) == 0 {
		return f.scan(item, from, known)
	}
	if len(f.chains) == 0 {
		return known
	}
	if len(item.Tags) == 0 {
		for _, hash := range hashes {
			known = f.follow(item, hash, from, known)
		}
		return known
	}
	rarest := hashes[0]
	for _, hash := range hashes[1:] {
		if f.chain(hash).length < f.chain(rarest).length {
			rarest = hash
		}
	}
	return f.follow(item, rarest, from, known)
}

func (f *tailIndex) follow(item *Item, hash int64, from, known int) int {
	for i := f.chain(hash).head; i > 0; {
		k := &f.keys[i-1]
		event := int(k.event)
		if event < from {
			break // the rest of the chain are earlier events
		}
		if k.hash == hash && (known < 0 || event < known) && f.matches(item, event) {
			known = event
		}
		i = k.next
	}
	return known
}

func (f *tailIndex) scan(item *Item, from, known int) int {
	for event := from; event < len(f.events); event++ {
		if known >= 0 && event >= known {
			break
		}
		if f.matches(item, event) {
			return event
		}
	}
	return known
}

func (f *tailIndex) matches(item *Item, event int) bool {
	e := &f.events[event]
	return e.eventType != "" && item.matches(e.eventType, f.tags[e.first:e.last])
}
