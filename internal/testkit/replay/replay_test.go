package replay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const poolHeader = `{"type":"pool","name":"x","config":{"hash":"le","caching":true,"events":true,"num_blocks":5,"hash_block_size":4,"st_every":9,"dump_every":9}}` + "\n"

func TestABadRecordingIsNamedWithItsLine(t *testing.T) {
	manager := strings.Replace(poolHeader, "pool", "manager", 1)
	manager = strings.Replace(manager, `"st_every"`, `"max_model_len":64,"groups":[{"kind":"full","bs":4}],"st_every"`, 1)
	for text, want := range map[string]string{
		"":                               "it is empty",
		poolHeader + "{}":                "line 2: no operation is named",
		poolHeader + `{"op":"pget"}`:     "line 2: pget has no result",
		poolHeader + `{"op":"pget","n":`: "line 2: unexpected end",
		poolHeader + `{"op":"x","r":{}}`: `line 2: there is no operation "x"`,
		poolHeader + `{"op":"pfree","ids":[2],"r":{}}`:                                         "block 2 is freed, but it is free already",
		strings.Replace(poolHeader, `"le"`, `"md5"`, 1):                                        `line 1: there is no hash "md5": want le or cbor`,
		strings.Replace(poolHeader, `blocks":5`, `blocks":0`, 1):                               "line 1: a pool of 0 blocks",
		manager + `{"op":"new","id":"a","r":{}}`:                                               "line 2: bad request: it has no tokens",
		manager + `{"op":"append","id":"a","r":{}}`:                                            "line 2: append",
		strings.Replace(v0Header, `"watermark_blocks":2`, `"watermark_blocks":1`, 1):           "line 1: the watermark is 2 blocks, the recording says 1",
		strings.Replace(v0Header, `}`, `,"flavour":"sosp24"}`, 1):                              `there is no flavour "sosp24": want none, sosp23`,
		strings.Replace(v0Header, `}`, `,"sliding_window":8,"max_block_sliding_window":3}`, 1): "a window has 4 blocks, the recording says 3",
		v0Allocated + `{"op":"jump","seq":1}`:                                                  `line 3: there is no operation "jump" in a recording of V0's manager`,
		strings.Replace(orcaHeader, `[0]`, `[1]`, 1):                                           `line 1: the free lists are {"8":[0]}, the recording says {"8":[1]}`,
	} {
		require.ErrorContains(t, verifyText(text), want, text)
	}
}

func TestADifferenceNamesOperationFieldAndValues(t *testing.T) {
	good := poolHeader + `{"i":1,"op":"pget","n":2,"r":{"ids":[1,2],"free":2,"hm":0,"fqh":"` + digest([]byte{3, 0, 0, 0, 4, 0, 0, 0}) + `"}}`
	require.NoError(t, verifyText(good))
	for change, want := range map[[2]string][]string{
		{`[1,2]`, `[1,3]`}:                  {"line 2: pget", "field     ids", "recorded  [1,3]", "played    [1,2]"},
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
