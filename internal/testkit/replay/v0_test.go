package replay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	v0Header    = `{"op":"init","block_size":4,"num_gpu_blocks":8,"num_cpu_blocks":4,"watermark":0.25,"watermark_blocks":2}` + "\n"
	v0Allocated = v0Header + `{"op":"allocate","group":"a","seqs":[1],"n":5,"tables":{"1":[0,1]},"free":[6,4]}` + "\n"
	orcaHeader  = `{"op":"init","flavour":"orca-oracle","block_size":4,"num_blocks":8,"max_block":8,"free_lists":{"8":[0]}}` + "\n"
)

func verifyText(text string) error {
	t, err := read(strings.NewReader(text))
	if err == nil {
		_, err = Verify(t)
	}
	return err
}

func TestEveryAnsweredFieldOfV0IsCompared(t *testing.T) {
	var d *Difference
	for old, replacement := range map[string]string{
		`[0,1]`:                 `[1,0]`,
		`[6,4]`:                 `[6,3]`,
		`,"free"`:               `,"new":1,"free"`,
		`,"tables":{"1":[0,1]}`: ``,
		`,"free":[6,4]`:         ``,
	} {
		require.ErrorAs(t, verifyText(strings.Replace(v0Allocated, old, replacement, 1)), &d, replacement)
		require.Equal(t, 2, d.Line)
	}
	// An argument is compared if the replay's result has it, too.
	unseen := v0Allocated + `{"op":"can_swap_out","group":"a","unseen":{"1":1},"ok":true,"free":[6,4]}`
	require.ErrorAs(t, verifyText(unseen), &d)
	require.Equal(t, "unseen", d.Field)
}
