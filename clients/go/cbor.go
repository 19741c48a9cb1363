package tidewire

import "errors"

func (r *request) binary() bool { return false }

func appendCBOR(dst []byte, client string, r *request) []byte { return dst }

func cborToJSON(data []byte) ([]byte, error) { return nil, errors.New("not yet") }

func (in *incoming) cborFields(data []byte) error { return errors.New("not yet") }
