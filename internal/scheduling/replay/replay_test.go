package replay

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const poolHeader = `{"type":"pool","name":"x","config":{"hash":"le","caching":true,"events":true,"num_blocks":5,"hash_block_size":4,"st_every":9,"dump_every":9}}` + "\n"

func TestABadRecordingIsNamedWithItsLine(t *testing.T) {
	manager := strings.Replace(poolHeader, "pool", "manager", 1)
	manager = strings.Replace(manager, `"st_every"`, `"max_model_len":64,"groups":[{"kind":"full","bs":4}],"st_every"`, 1)
	scheduler := strings.Replace(manager, `"manager"`, `"scheduler"`, 1)
	scheduler = strings.Replace(scheduler, `"st_every"`, `"policy":"fcfs","max_num_seqs":4,"max_num_batched_tokens":16,"st_every"`, 1)
	for text, want := range map[string]string{
		"":                                      "it is empty",
		"{":                                     "line 1: unexpected end",
		`{"type":"zoo","config":{"hash":"le"}}`: `line 1: the type is "zoo": want pool, manager or scheduler`,
		poolHeader + "{}":                       "line 2: no operation is named",
		poolHeader + `{"op":"pget"}`:            "line 2: pget has no result",
		poolHeader + `{"op":"pget","n":`:        "line 2: unexpected end",
		poolHeader + `{"op":"x","r":{}}`:        `line 2: x names request "", which does not exist`,
		poolHeader + `{"op":"pfree","ids":[5],"r":{}}`:  "line 2: pfree names block 5 of a pool of 5",
		poolHeader + `{"op":"pfree","ids":[-1],"r":{}}`: "line 2: pfree names block -1 of a pool of 5",
		poolHeader + `{"op":"pfree","ids":[2],"r":{}}`:  "block 2 is freed, but it is free already",
		poolHeader + `{"op":"pdrop","id":"a","r":{}}`:   `line 2: pdrop names request "a", which does not exist`,
		poolHeader + `{"i":1,"op":"pnew","id":"a","tok":[1],"r":{"nh":0,"lh":null,"free":4,"hm":0,"fqh":"` +
			digest([]byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}) + `"}}` + "\n" +
			`{"op":"pcache","id":"a","ids":[1],"nc":0,"nf":1,"bs":4,"r":{}}`: "line 3: pcache: 1 full blocks of 4 tokens, with 1 blocks and 1 tokens",
		strings.Replace(poolHeader, `"le"`, `"md5"`, 1):                        `line 1: there is no hash "md5": want le or cbor`,
		strings.Replace(poolHeader, `blocks":5`, `blocks":0`, 1):               "line 1: a pool of 0 blocks",
		strings.Replace(manager, `"full"`, `"half"`, 1):                        `line 1: group 0 is "half": want full, swa, chunk or mamba`,
		manager + `{"op":"free","id":"a","r":{}}`:                              `line 2: free names request "a", which does not exist`,
		manager + `{"op":"new","id":"a","r":{}}`:                               "line 2: bad request: it has no tokens",
		manager + `{"op":"evict","block":7,"r":{}}`:                            "line 2: bad request: block 7 of a pool of 5",
		strings.Replace(scheduler, "fcfs", "lifo", 1):                          `line 1: there is no policy "lifo": want fcfs or priority`,
		scheduler + `{"op":"jump","r":{}}`:                                     `line 2: there is no operation "jump" in a recording of a scheduler`,
		scheduler + `{"op":"step","sample":{"a":[1]},"r":{}}`:                  "line 2: tokens are sampled for a request that is not in the step",
		scheduler + `{"op":"step","add":[{"id":"a","max":3,"tok":[]}],"r":{}}`: `line 2: add "a": bad request: a prompt of 0 tokens`,
	} {
		require.ErrorContains(t, verifyText(text), want, text)
	}
	_, err := Load(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write([]byte(poolHeader))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = read(bytes.NewReader(packed.Bytes()[:packed.Len()-9]))
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorContains(t, err, "after line")
}

// A difference names the operation, the field, both values and the pool around
// it.
func TestADifferenceNamesOperationFieldAndValues(t *testing.T) {
	good := poolHeader + `{"i":1,"op":"pget","n":2,"r":{"ids":[1,2],"free":2,"hm":0,"fqh":"` + digest([]byte{3, 0, 0, 0, 4, 0, 0, 0}) + `"}}`
	require.NoError(t, verifyText(good))
	for change, want := range map[[2]string][]string{
		{`[1,2]`, `[1,3]`}:                  {"line 2: pget", "field     ids", "recorded  [1,3]", "played    [1,2]", "2 of 4 blocks free", "head [3 4]", "block 3    count 0", "place 0 in the queue", "block 1    count 1"},
		{`"free":2`, `"free":3`}:            {"field     free", "recorded  3", "played    2"},
		{`"hm":0,`, ``}:                     {"field     hm", "recorded  (absent)", "played    0"},
		{`"hm":0,`, `"hm":0,"ev":[["C"]],`}: {"field     ev", `recorded  [["C"]]`, "played    (absent)"},
		{`"hm":0,`, `"hm":0,"new":1,`}:      {"field     new"},
		{`"hm":0,`, `"hm":0.0,`}:            nil, // the same number
	} {
		err := verifyText(strings.Replace(good, change[0], change[1], 1))
		if want == nil {
			require.NoError(t, err)
			continue
		}
		var d *Difference
		require.ErrorAs(t, err, &d)
		for _, text := range want {
			require.ErrorContains(t, err, text)
		}
	}
}
