package embedpg

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestStop_AfterKill: after Kill and Stop no shared memory of the server is left: once its directory is removed, nobody would free it.
func TestStop_AfterKill(t *testing.T) {
	t.Parallel()
	srv := start(t, testConfig(t))
	p, ok, err := srv.dir.readPID()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	id, ok := p.segment()
	if !ok {
		t.Fatalf("no segment in %q", p.rest)
	}
	var info unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &info); err != nil {
		t.Fatalf("the segment of a server that runs: %v", err)
	}
	if err := srv.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := srv.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &info); err == nil {
		t.Errorf("segment %d is left", id)
	}
}
