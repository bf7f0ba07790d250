package machine

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestAControlGroupLimitsTheMemoryThatIsAvailable(t *testing.T) {
	for _, test := range []struct {
		name    string
		files   map[string]string
		want    int
		limited bool
	}{
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "700\n",
			"sys/fs/cgroup/memory.stat": "anon 100\nfile 600\ninactive_file 200\nactive_file 300\n",
		}, 800, true},
		{"version 2 without a limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "700\n",
		}, 0, false},
		{"a limit of a group around it", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "900\n",
			"sys/fs/cgroup/a/b/memory.current": "100\n",
			"sys/fs/cgroup/a/memory.max":       "1000\n", "sys/fs/cgroup/a/memory.current": "950\n",
		}, 50, true},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:cpu:/x\n4:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes": "700\n",
			"sys/fs/cgroup/memory/a/memory.stat":           "inactive_file 5\ntotal_inactive_file 100\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":   "5000\n",
		}, 400, true},
		{"version 1 in a container, which sees its group as the root", map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abc\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "700\n",
		}, 300, true},
		{"more in use than the limit, which was lowered", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "700\n",
		}, 0, true},
		{"no control groups", nil, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range test.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			got, limited := groupMemory(root)
			require.Equal(t, test.limited, limited)
			require.Equal(t, test.want, got)
		})
	}
	bytes, known := machineMemory(fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")}})
	require.True(t, known)
	require.Equal(t, 2<<20, bytes)
}
