//go:build !linux && !darwin

package websocket

func sysOutgoing(uintptr) int { return 0 }

func limitUnsent(uintptr, int) {}
