package cluster

const notesTopic = "notes"

// Notes are what each node tells all others once a second. A note that is lost is not sent again: the next one takes its place.
type Notes struct {
	// Write returns the note of this node.
	Write func() []byte
	// Last returns the note with which this node stops.
	Last func() []byte
	// Read takes the note of another node, and does not keep its bytes.
	Read func(node uint64, note []byte)
}

// Exchange makes the node exchange notes with the others. Call it once.
func (n *Node) Exchange(notes Notes) { n.notes.Store(&notes) }

func (n *Node) sendNote() {
	notes := n.notes.Load()
	if notes == nil {
		return
	}
	if note := notes.Write(); n.others.Load() > 0 {
		n.publishNote(note)
	}
}

func (n *Node) sendLastNote() {
	if notes := n.notes.Load(); notes != nil {
		n.publishNote(notes.Last())
	}
}

func (n *Node) publishNote(note []byte) {
	n.relay.Publish(notesTopic, append(appendHead(nil, kindNote, n.id), note...))
}

func (n *Node) hearNote(kind byte, r *reader, from uint64) {
	if kind != kindNote {
		r.err = errMalformed
		return
	}
	if notes := n.notes.Load(); notes != nil && n.hears(from) {
		notes.Read(from, r.rest)
	}
}
