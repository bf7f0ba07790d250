package replay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	v0Header    = `{"op":"init","block_size":4,"num_gpu_blocks":8,"num_cpu_blocks":4,"watermark":0.25,"watermark_blocks":2}` + "\n"
	v0Allocated = v0Header + `{"op":"allocate","group":"a","seqs":[1],"n":5,"tables":{"1":[0,1]},"free":[6,4]}` + "\n"
	schedHeader = `{"op":"init","block_size":4,"num_gpu_blocks":8,"max_num_batched_tokens":16,"max_num_seqs":2,"max_model_len":32}` + "\n"
	sospHeader  = `{"op":"init","flavour":"sosp23","block_size":4,"num_gpu_blocks":8}` + "\n"
	orcaHeader  = `{"op":"init","flavour":"orca-oracle","block_size":4,"num_blocks":8,"max_block":8,"free_lists":{"8":[0]}}` + "\n"
)

func verifyText(text string) error {
	t, err := read(strings.NewReader(text))
	if err == nil {
		_, err = Verify(t)
	}
	return err
}

// A recording that is bad says in which line, and what.
func TestBadOldRecordings(t *testing.T) {
	require.NoError(t, verifyText(v0Allocated))
	for text, want := range map[string]string{
		v0Header + "{}":   "line 2: no operation is named",
		v0Header + `{"op`: "line 2: unexpected end",
		strings.Replace(v0Header, `"block_size":4`, `"block_size":0`, 1):                       "line 1: bad configuration: blocks of 0 tokens",
		strings.Replace(v0Header, `"watermark_blocks":2`, `"watermark_blocks":1`, 1):           "line 1: the watermark is 2 blocks, the recording says 1",
		strings.Replace(v0Header, `}`, `,"flavour":"sosp24"}`, 1):                              `there is no flavour "sosp24": want none, sosp23`,
		strings.Replace(v0Header, `}`, `,"sliding_window":8,"max_block_sliding_window":3}`, 1): "a window has 4 blocks, the recording says 3",
		v0Header + `{"op":"append","seq":1,"n":1}`:                                             "line 2: append names sequence 1, which does not exist",
		v0Header + `{"op":"allocate","group":"a","n":1}`:                                       "line 2: allocate for no sequence",
		v0Allocated + `{"op":"allocate","group":"b","seqs":[1],"n":1}`:                         "line 3: there is a sequence 1 already",
		v0Allocated + `{"op":"fork","group":"a","parent":1,"child":1}`:                         "line 3: there is a sequence 1 already",
		v0Allocated + `{"op":"access","seqs":[2]}`:                                             "line 3: there is no sequence 2",
		v0Allocated + `{"op":"jump","seq":1}`:                                                  `line 3: there is no operation "jump" in a recording of V0's manager`,
		v0Allocated + `{"op":"slots","seq":1,"context_len":0,"seq_len":9}`:                     "line 3: slots",
		v0Allocated + `{"op":"swap_in","group":"a"}`:                                           "field     mapping",
		schedHeader + `{"op":"add","id":1,"prompt":0}`:                                         "line 2: bad request 1: a prompt of 0 tokens",
		schedHeader + `{"op":"jump"}`:                                                          `line 2: there is no operation "jump"`,
		strings.Replace(schedHeader, `}`, `,"preemption_mode":"kill"}`, 1):                     `line 1: the preemption mode is "kill": want swap, recompute or null`,
		sospHeader + `{"op":"append","seq":1}`:                                                 "line 2: append names sequence 1, which does not exist",
		sospHeader + `{"op":"can_append","group":1}`:                                           "line 2: can_append names group 1, which does not exist",
		orcaHeader + `{"op":"free","seq":1}`:                                                   "line 2: free names sequence 1, which has no chunk",
		orcaHeader + `{"op":"jump"}`:                                                           `line 2: there is no operation "jump" in a recording of Orca`,
		strings.Replace(orcaHeader, `[0]`, `[1]`, 1):                                           `line 1: the free lists are {"8":[0]}, the recording says {"8":[1]}`,
	} {
		require.ErrorContains(t, verifyText(text), want, text)
	}
}

// Ensure that every answered field is compared, also one that is not known, one
// that is missing, and the free blocks.
func TestEveryAnsweredFieldOfV0IsCompared(t *testing.T) {
	var d *Difference
	for from, to := range map[string]string{
		`[0,1]`:                 `[1,0]`,
		`[6,4]`:                 `[6,3]`,
		`,"free"`:               `,"new":1,"free"`,
		`,"tables":{"1":[0,1]}`: ``,
		`,"free":[6,4]`:         ``,
	} {
		require.ErrorAs(t, verifyText(strings.Replace(v0Allocated, from, to, 1)), &d, to)
		require.Equal(t, 2, d.Line)
	}
	// What is given is compared where it is known, too.
	unseen := v0Allocated + `{"op":"can_swap_out","group":"a","unseen":{"1":1},"ok":true,"free":[6,4]}`
	require.ErrorAs(t, verifyText(unseen), &d)
	require.Equal(t, "unseen", d.Field)
}
