//go:build !linux

package fault

import "errors"

// Available returns an error: network namespaces need Linux.
func Available() error { return errors.New("fault: network namespaces need Linux") }

func lockSlot(int) (*slot, error) { return nil, Available() }
