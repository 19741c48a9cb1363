package budget

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shirou/gopsutil/v4/mem"
)

// MachineMemory returns how many bytes of memory this process may use, and the source
// of this number. It is the minimum of the machine's memory and the limits of the
// process's control groups (cgroup v1 and v2) and their parents. An error means that
// not even the machine's memory is known.
func MachineMemory() (n int64, source string, err error) {
	total, err := mem.VirtualMemory()
	if err != nil {
		return 0, "", fmt.Errorf("budget: find the machine's memory: %w", err)
	}
	n, source = machineMemory("/", int64(min(total.Total, math.MaxInt64)))
	return n, source, nil
}

// machineMemory is MachineMemory with the file system under root.
func machineMemory(root string, total int64) (n int64, source string) {
	n, source = total, "the machine's memory"
	for _, dir := range cgroupDirs(root) {
		for _, name := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} {
			path := filepath.Join(dir, name)
			if limit, ok := readLimit(filepath.Join(root, path)); ok && limit < n {
				n, source = limit, path
			}
		}
	}
	return n, source
}

// readLimit reads a file of a control group with a number of bytes. "max" is no
// limit, and neither is 0: nothing could run.
func readLimit(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n > 0
}

// cgroupDirs returns the directories of the control groups that bound the
// process's memory: its own of each hierarchy, and their parents as far as they are
// mounted.
func cgroupDirs(root string) []string {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil // not Linux, or no /proc
	}
	mounts := cgroupMounts(root)
	var dirs []string
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.SplitN(line, ":", 3) // hierarchy:controllers:path
		if len(fields) != 3 {
			continue
		}
		v2 := fields[0] == "0" && fields[1] == ""
		if !v2 && !slices.Contains(strings.Split(fields[1], ","), "memory") {
			continue
		}
		for _, m := range mounts {
			if m.v2 == v2 {
				dirs = append(dirs, m.dirs(fields[2])...)
			}
		}
	}
	return dirs
}

// cgroupMount is a mount of a hierarchy of control groups: the part that is mounted
// (root), and where (point).
type cgroupMount struct {
	v2          bool
	root, point string
}

// cgroupMounts reads the mounts of cgroup v2, and of v1's memory controller.
func cgroupMounts(root string) []cgroupMount {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var mounts []cgroupMount
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		// id parent device root point options… - type source options
		mount, fs, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(mount), strings.Fields(fs)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		v2 := right[0] == "cgroup2"
		if v2 || right[0] == "cgroup" && slices.Contains(strings.Split(right[2], ","), "memory") {
			mounts = append(mounts, cgroupMount{v2, unescape(left[3]), unescape(left[4])})
		}
	}
	return mounts
}

// dirs returns the directories of a group and of its parents. In a container the
// group's path may be that on the host, where only the mounted part is visible; then
// the mounted part is the group.
func (m cgroupMount) dirs(group string) []string {
	rel, err := filepath.Rel(m.root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		rel = "."
	}
	dirs := []string{m.point}
	for i, c := range rel {
		if c == '/' {
			dirs = append(dirs, filepath.Join(m.point, rel[:i]))
		}
	}
	if rel != "." {
		dirs = append(dirs, filepath.Join(m.point, rel))
	}
	return dirs
}

// unescape undoes the octal escapes of mountinfo: blank, tab, newline, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
