package compare

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLeastOfWhatTheMachineAndItsGroupsHaveLeftCounts(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, math.MaxInt64},
		{"a machine without groups", map[string]string{"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"}, 2 * mib},
		{"a group above, version 2", map[string]string{
			"proc/meminfo": "MemAvailable: 2048000 kB\n", "proc/self/cgroup": "0::/class/job\n",
			"sys/fs/cgroup/class/job/memory.max": "max\n", "sys/fs/cgroup/class/job/memory.current": "5\n",
			"sys/fs/cgroup/class/memory.max": "9437184\n", "sys/fs/cgroup/class/memory.current": "8388608\n",
			"sys/fs/cgroup/class/memory.stat": "active_file 1\ninactive_file 1048576\n",
		}, 2 * mib},
		{"a container's group, version 2", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4194304\n", "sys/fs/cgroup/memory.current": "1048576\n",
		}, 3 * mib},
		{"a group of version 1", map[string]string{
			"proc/self/cgroup": "8:pids:/\n4:memory:/job\n0::/\n", "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4194304\n",
			"sys/fs/cgroup/memory/job/memory.usage_in_bytes": "3145728\n",
		}, mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				file := filepath.Join(root, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			}
			require.Equal(t, c.want, memoryLeft(root))
		})
	}
}
