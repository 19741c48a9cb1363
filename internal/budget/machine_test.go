package budget

import (
	"os"
	"path/filepath"
	"testing"
)

const (
	mountV2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1     = "40 30 0:35 / /sys/fs/cgroup/memory rw,nosuid shared:16 - cgroup cgroup rw,memory\n"
	mountDocker = "40 30 0:35 /docker/abc /sys/fs/cgroup/memory ro,nosuid master:16 - cgroup cgroup rw,memory\n"
	unlimitedV1 = "9223372036854771712\n"
)

func TestMachineMemory_trees(t *testing.T) {
	const total = 8 << 30
	for _, test := range []struct {
		name   string
		files  map[string]string
		want   int64
		source string
	}{
		{"no proc", nil, total, "the machine's memory"},
		{"v2, own group", map[string]string{
			"proc/self/cgroup": "0::/system.slice/tidewire.service\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/system.slice/tidewire.service/memory.max": "268435456\n",
			"sys/fs/cgroup/system.slice/memory.max":                  "max\n",
		}, 256 << 20, "/sys/fs/cgroup/system.slice/tidewire.service/memory.max"},
		{"v2, parent", map[string]string{
			"proc/self/cgroup": "0::/a/b/c\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/b/c/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.max": "4294967296\n", "sys/fs/cgroup/a/memory.max": "1073741824\n",
		}, 1 << 30, "/sys/fs/cgroup/a/memory.max"},
		{"v2, throttled before the limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.high": "536870912\n",
		}, 512 << 20, "/sys/fs/cgroup/a/memory.high"},
		{"v2, a group outside of what is mounted", map[string]string{
			"proc/self/cgroup": "0::/../../other\n", "proc/self/mountinfo": mountV2, "sys/fs/cgroup/memory.max": "134217728\n",
		}, 128 << 20, "/sys/fs/cgroup/memory.max"},
		{"v2, a mount point with a blank", map[string]string{
			"proc/self/cgroup":    "0::/\n",
			"proc/self/mountinfo": "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n", "my groups/memory.max": "134217728\n",
		}, 128 << 20, "/my groups/memory.max"},
		{"v1, parent", map[string]string{
			"proc/self/cgroup": "5:memory:/user/me\n", "proc/self/mountinfo": mountV1,
			"sys/fs/cgroup/memory/user/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/user/me/memory.limit_in_bytes": unlimitedV1,
		}, 1 << 30, "/sys/fs/cgroup/memory/user/memory.limit_in_bytes"},
		{"v1, a container with the host's path", map[string]string{
			"proc/self/cgroup": "5:memory:/docker/abc\n", "proc/self/mountinfo": mountDocker,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n",
		}, 256 << 20, "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		{"both, the lower counts", map[string]string{
			"proc/self/cgroup": "5:memory:/user\n0::/user\n", "proc/self/mountinfo": mountV1 + mountV2,
			"sys/fs/cgroup/memory/user/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/user/memory.max": "1073741824\n",
		}, 1 << 30, "/sys/fs/cgroup/user/memory.max"},
		{"more than the machine has", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mountV2, "sys/fs/cgroup/a/memory.max": "1099511627776\n",
		}, total, "the machine's memory"},
		{"nonsense", map[string]string{
			"proc/self/cgroup": "0::/a\nx\n::\n", "proc/self/mountinfo": "x\n - \n" + mountV2, "sys/fs/cgroup/a/memory.max": "-5\n",
			"sys/fs/cgroup/a/memory.high": "0\n",
		}, total, "the machine's memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if n, source := machineMemory(root, total); n != test.want || source != test.source {
				t.Errorf("got %d from %s, want %d from %s", n, source, test.want, test.source)
			}
		})
	}
}

func TestMachineMemory_here(t *testing.T) {
	n, source, err := MachineMemory()
	if err != nil || n < 16<<20 || source == "" {
		t.Errorf("got %d from %q, %v", n, source, err)
	}
	t.Logf("%d MiB, %s", n>>20, source)
}
