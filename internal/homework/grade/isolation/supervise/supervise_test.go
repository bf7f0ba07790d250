package supervise

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheEndOfALotOfOutputIsKept(t *testing.T) {
	const script = "head -c 300000 /dev/zero >&3; echo the end >&3; exit 86"
	for _, c := range []struct {
		name string
		keep Keep
		exit int
	}{
		{"tail", tail(1000), 86},
		{"all that there is", Head(1 << 20), 86},
		{"more than may be", Head(1000), -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", script)
			end, err := Run(cmd, func(pipe *os.File) { cmd.ExtraFiles = []*os.File{pipe} }, maxTime, c.keep)
			require.NoError(t, err)
			require.Equal(t, c.exit, end.Exit)
			if c.exit == 86 {
				require.Equal(t, "the end\n", string(end.Said[len(end.Said)-8:]))
			}
		})
	}
}
