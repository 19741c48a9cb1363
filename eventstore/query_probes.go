package eventstore

import (
	"math"
	"strconv"
)

// noPosition is higher than all positions.
const noPosition = math.MaxInt64

// probes is a query encoded for PostgreSQL: one probe for each type of each item,
// in columns. See migrate/sql for what a probe is.
type probes struct {
	n                                                    int
	drivers, others, signatures, typeHashes, types, tags column
	tagless                                              bool    // one of them has no tags
	tagged                                               int     // number of tags of all probes
	hashes                                               []int64 // scratch
}

func (p *probes) reset() {
	p.n, p.tagless, p.tagged = 0, false, 0
	p.drivers, p.others, p.signatures = p.drivers[:0], p.others[:0], p.signatures[:0]
	p.typeHashes, p.types, p.tags = p.typeHashes[:0], p.types[:0], p.tags[:0]
}

// bytes is the size of the probes as parameters.
func (p *probes) bytes() int {
	const callAndAfter = 8 + 12
	return p.n*callAndAfter + len(p.drivers) + len(p.others) + len(p.signatures) + len(p.typeHashes) + len(p.types) + len(p.tags)
}

// bounds limits the rows of the index that a check reads before it gives up: rows is
// the approximate total, least and most are the limits for one probe.
type bounds struct{ rows, least, most int }

var (
	// underLock takes some milliseconds, because all other appends wait for the lock.
	underLock = bounds{20_000, 5, 1000}
	// ahead may take longer, because it delays only the calls of one batch.
	ahead = bounds{400_000, 100, 5000}
)

// budget returns the number of rows after which the check of a probe gives up.
func (b bounds) budget(lookups int) int32 {
	return int32(min(max(b.rows/max(lookups, 1), b.least), b.most))
}

// maxLookups is how many index lookups PostgreSQL makes in the conditions of one batch. A batch has one condition with more at most: all calls of a
// batch wait for all of its conditions.
const maxLookups = 1000

// maxLookupsAhead is the same for the conditions that are checked while another batch commits.
const maxLookupsAhead = 4 * maxLookups

// lookups is the number of index lookups for a check of the probes.
func (p *probes) lookups() int { return p.n + p.tagged }

// add appends the probes of the query. Each is looked up by its rarest tag, according to
// known.
func (p *probes) add(q *Query, known *tagFrequency) {
	if len(q.Items) == 0 {
		p.addItem(&Item{}, known)
	}
	for i := range q.Items {
		p.addItem(&q.Items[i], known)
	}
}

func (p *probes) addItem(item *Item, known *tagFrequency) {
	p.hashes = p.hashes[:0]
	var sig int64
	for _, tag := range item.Tags {
		hash := tagHash(tag)
		p.hashes = append(p.hashes, hash)
		sig |= signature(hash)
	}
	driver := int64(0)
	if len(p.hashes) > 0 {
		driver = p.hashes[known.rarest(p.hashes)]
	}
	if len(item.Types) == 0 {
		p.addProbe(item, "", driver, sig)
	}
	for _, name := range item.Types {
		p.addProbe(item, name, driver, sig)
	}
}

func (p *probes) addProbe(item *Item, eventType string, driver, sig int64) {
	p.n++
	p.tagged += len(p.hashes)
	if eventType == "" {
		p.types.null()
		p.typeHashes.null()
	} else {
		p.types.text(eventType)
		p.typeHashes.int4(typeHash(eventType))
	}
	p.signatures.int8(sig)
	if len(p.hashes) == 0 {
		p.tagless = true
		p.drivers.null()
		p.others.null()
		p.tags.null()
		return
	}
	p.drivers.int8(driver)
	p.tags.textArray(item.Tags)
	if len(p.hashes) == 1 {
		p.others.null()
		return
	}
	text := []byte{'{'}
	for i, hash := range p.hashes {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, hash, 10)
	}
	p.others.bytes(append(text, '}'))
}
