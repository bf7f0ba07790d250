// Package machine says what the machine has left for a process.
package machine

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// AvailableMemory returns the memory that can be used without swapping. A control group (of a container, or of a
// systemd unit with MemoryMax) may have less memory available than the machine; the result is the smallest of these
// numbers. ok is false if they are unknown.
func AvailableMemory() (bytes int, ok bool) {
	root := os.DirFS("/")
	bytes, ok = machineMemory(root)
	if !ok {
		var info unix.Sysinfo_t
		if unix.Sysinfo(&info) == nil {
			bytes, ok = int(uint64(info.Freeram)*uint64(info.Unit)), true
		}
	}
	if group, limited := groupMemory(root); limited && (!ok || group < bytes) {
		return group, true
	}
	return bytes, ok
}

func machineMemory(root fs.FS) (bytes int, ok bool) {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kb); n == 1 {
			return kb << 10, true
		}
	}
	return 0, false
}

// groupFiles names the files in which one version of control groups has its limits.
type groupFiles struct {
	mount, limit, used string
	cached             []string // lines of memory.stat: cached files, which the system drops before it kills a process
}

var (
	groupsV1 = groupFiles{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
		[]string{"total_inactive_file", "total_active_file"}}
	groupsV2 = groupFiles{"sys/fs/cgroup", "memory.max", "memory.current", []string{"inactive_file", "active_file"}}
)

// groupMemory returns the smallest amount of memory that a control group of this process has available. ok is false
// if no group has a limit.
func groupMemory(root fs.FS) (bytes int, ok bool) {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) < 3 {
			continue
		}
		files := groupsV1
		if parts[1] == "" {
			files = groupsV2
		} else if parts[1] != "memory" {
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if n, limited := files.available(root, path.Join(files.mount, dir)); limited && (!ok || n < bytes) {
				bytes, ok = n, true
			}
			if dir == "/" {
				break
			}
		}
	}
	return bytes, ok
}

// available returns the memory that a control group may still allocate. ok is false if the group has no limit, or if
// its files are not visible in this container.
func (g *groupFiles) available(root fs.FS, dir string) (bytes int, ok bool) {
	number := func(name string) (int, bool) {
		text, err := fs.ReadFile(root, path.Join(dir, name))
		n, notNumber := strconv.Atoi(strings.TrimSpace(string(text))) // "max" means no limit
		return n, err == nil && notNumber == nil
	}
	limit, limited := number(g.limit)
	used, known := number(g.used)
	if !limited || !known {
		return 0, false
	}
	stat, _ := fs.ReadFile(root, path.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		for _, name := range g.cached {
			var n int
			if got, _ := fmt.Sscanf(line, name+" %d", &n); got == 1 {
				used -= n
			}
		}
	}
	return max(0, limit-max(0, used)), true
}
