package eventstore

// The hashes of tags and types in the index: migrate/sql explains their use.
// These functions are part of the format of the database and never change.

// tagHash is 64-bit FNV-1a, followed by a bit mixer, because the signature uses only
// some of the bits.
func tagHash(tag string) int64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(tag) {
		h = (h ^ uint64(tag[i])) * prime
	}
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return int64(h)
}

// typeHash is the lower half of the same.
func typeHash(name string) int32 { return int32(tagHash(name)) }

// signature returns a mask of 64 bits in which at most three are set: a Bloom filter of
// the tag with that hash.
func signature(hash int64) int64 {
	h := uint64(hash)
	return int64(1<<(h&63) | 1<<(h>>6&63) | 1<<(h>>12&63))
}
