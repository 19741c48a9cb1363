package tidewire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// cborToJSON returns a message as JSON, for what comes seldom.
func cborToJSON(data []byte) ([]byte, error) {
	d := decoder{data: data}
	value, err := d.value(0)
	if err != nil {
		return nil, err
	}
	return json.Marshal(finite(value))
}

// finite replaces numbers that JSON does not have by null.
func finite(value any) any {
	switch v := value.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = finite(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = finite(v[name])
		}
	}
	return value
}

// cborFields fills in from CBOR.
func (in *incoming) cborFields(data []byte) error {
	*in = incoming{raw: data, cbor: true, partition: -1}
	d := decoder{data: data}
	kind, n, open, err := d.head()
	if err != nil || kind != cborObject {
		return errCBOR
	}
	for i := uint64(0); d.more(i, n, open); i++ {
		name, err := d.bytes()
		if err != nil {
			return err
		}
		if d.at < len(data) && data[d.at] == cborNull {
			d.at++
			continue
		}
		at := d.at
		if err := in.cborField(&d, name); err != nil {
			d.at = at
			if d.skip(1) != nil {
				return err
			}
			if in.wrong == nil {
				in.wrong = fmt.Errorf("the field %q: %w", name, err)
			}
		}
	}
	return nil
}

func (in *incoming) cborField(d *decoder, name []byte) (err error) {
	var n int64
	switch string(name) {
	case "type":
		in.kind, err = d.bytes()
	case "id":
		n, err = d.number()
		in.id = uint64(n)
	case "subscription":
		in.subscription, err = d.bytes()
	case "queue":
		in.queue, err = d.bytes()
	case "room":
		in.room, err = d.bytes()
	case "delivery":
		in.delivery, err = d.bytes()
	case "key":
		in.key, err = d.bytes()
	case "time":
		in.time, err = d.bytes()
	case "payload":
		var payload []byte
		payload, err = d.bytes()
		in.payload = bytes.Clone(payload)
	case "position":
		in.position, err = d.number()
		in.has = err == nil
	case "count":
		in.count, err = d.number()
	case "partition":
		n, err = d.number()
		in.partition = int(n)
	case "attempt":
		n, err = d.number()
		in.attempt = int(n)
	case "headers":
		var value any
		value, err = d.value(1)
		in.headers, _ = value.(map[string]any)
	case "duplicate":
		var value any
		value, err = d.value(1)
		in.duplicate = value == true
	default:
		err = d.skip(1)
	}
	return err
}

// skip reads a value of any kind, and keeps nothing of it.
func (d *decoder) skip(depth int) error {
	kind, n, open, err := d.head()
	if err != nil || depth > cborDepth {
		return errCBOR
	}
	switch kind {
	case cborBytes, cborText:
		_, err = d.rest(kind, n, open)
		return err
	case cborArray, cborObject:
		for i := uint64(0); d.more(i, n, open); i++ {
			if kind == cborObject {
				if err := d.skip(depth + 1); err != nil {
					return err
				}
			}
			if err := d.skip(depth + 1); err != nil {
				return err
			}
		}
	}
	return nil
}
