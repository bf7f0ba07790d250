package compare

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// memoryLeft returns the memory that the machine and the grader's control groups have left, or
// the largest int64 if neither is known. root is "/" except in tests.
func memoryLeft(root string) int64 {
	left := int64(math.MaxInt64)
	if kib, found := number(filepath.Join(root, "proc/meminfo"), available); found {
		left = kib << 10
	}
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return left
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.SplitN(line, ":", 3) // number, controllers, path
		switch {
		case len(fields) < 3:
		case fields[1] == "memory":
			left = min(left, version1.left(filepath.Join(root, "sys/fs/cgroup/memory"), fields[2]))
		case fields[1] == "":
			left = min(left, version2.left(filepath.Join(root, "sys/fs/cgroup"), fields[2]))
		}
	}
	return left
}

// groupFiles are the names of files in one version of Linux's control groups.
type groupFiles struct {
	limit, used string
	cache       *regexp.Regexp // in memory.stat: what the kernel frees on demand
}

var (
	version1 = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", regexp.MustCompile(`(?m)^total_inactive_file (\d+)$`)}
	version2 = groupFiles{"memory.max", "memory.current", regexp.MustCompile(`(?m)^inactive_file (\d+)$`)}

	available = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)
	whole     = regexp.MustCompile(`^(\d+)\n?$`) // "max" means no limit
)

// left returns the least memory that a group or one of its parents has left. In a container, the path may be the host's:
// then the root of the mount is the group.
func (f groupFiles) left(mount, path string) int64 {
	left := int64(math.MaxInt64)
	for dir := filepath.Join(mount, path); ; dir = filepath.Dir(dir) {
		limit, limited := number(filepath.Join(dir, f.limit), whole)
		used, known := number(filepath.Join(dir, f.used), whole)
		if limited && known {
			cache, _ := number(filepath.Join(dir, "memory.stat"), f.cache)
			left = min(left, limit-used+cache)
		}
		if len(dir) <= len(mount) {
			return left
		}
	}
}

// number returns the first group of a pattern in a file.
func number(file string, pattern *regexp.Regexp) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	m := pattern.FindSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	return n, err == nil
}
