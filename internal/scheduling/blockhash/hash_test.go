package blockhash

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func extraOfB() []Key {
	image := Key{Kind: Tuple, Tuple: []Key{{Text: "imgA"}, {Kind: Int, Int: -3}}}
	return []Key{{Text: "ada"}, image, {Text: "s1"}}
}

// The expected hashes are the examples in the document about the trace format.
func TestHashesAreTheDocumentedOnes(t *testing.T) {
	for f, want := range map[Function][3]string{
		LE{}: {
			"0000000000000000000000000000000000000000000000000000000000000000",
			"9a21117172b9b27757652dc5355857915df712cceb783f0b68f9c55ab0ddb63b",
			"1b4c2e5c2baf6d0dd534127088a3fa689af210fb99e71a4d4e79bf7fcf275bbd",
		},
		CBOR("0"): {
			"4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
			"c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb",
			"b5af1c5d086697dfe7736ceabd773a77485f9e88c0284d47dbcc5a4c92951c3e",
		},
	} {
		h := f.Root()
		require.Equal(t, want[0], hex.EncodeToString(h[:]), "%T", f)
		f.Sum(&h, &h, []int32{1, 2, 3, 4}, nil)
		require.Equal(t, want[1], hex.EncodeToString(h[:]), "%T", f)
		f.Sum(&h, &h, []int32{5, 6, 70000, 8}, extraOfB())
		require.Equal(t, want[2], hex.EncodeToString(h[:]), "%T", f)
	}
}

func TestEveryInputChangesTheHash(t *testing.T) {
	long := make([]int32, 4096)
	for _, f := range []Function{LE{}, CBOR("0"), NewFast()} {
		seen := map[Hash]int{}
		root := f.Root()
		one := Hash{31: 1}
		for i, in := range []struct {
			parent Hash
			tokens []int32
			extra  []Key
		}{
			{root, []int32{1, 2}, nil}, {one, []int32{1, 2}, nil}, {root, []int32{2, 1}, nil},
			{root, []int32{1}, nil}, {root, []int32{1, 2, 0}, nil}, {root, []int32{1, 2}, extraOfB()},
			{root, []int32{1, 2}, extraOfB()[1:]},
			{root, long, nil}, {root, long[1:], nil}, {root, nil, nil},
			{root, []int32{24, 255, 256, 65535, 65536}, nil},
		} {
			var h, again Hash
			f.Sum(&h, &in.parent, in.tokens, in.extra)
			f.Sum(&again, &in.parent, in.tokens, in.extra)
			require.Equal(t, h, again)
			before, collides := seen[h]
			require.False(t, collides, "%T: inputs %d and %d", f, before, i)
			seen[h] = i
		}
	}
	a, b := NewFast(), NewFast()
	var ha, hb Hash
	a.Sum(&ha, &ha, long, nil)
	b.Sum(&hb, &hb, long, nil)
	require.NotEqual(t, ha, hb, "two processes do not share a seed")
}

func TestEveryHashFormatIsVLLMs(t *testing.T) {
	h := Hash{0: 0xab, 7: 0x01, 24: 0x12, 31: 0xff}
	require.Equal(t, "ab00000000000001", h.Short())
	require.Equal(t, uint64(0x12000000000000ff), h.Low64())
	for i := range h {
		o := h
		require.True(t, h.Equal(&o))
		o[i] ^= 1
		require.False(t, h.Equal(&o), "byte %d", i)
	}
}

// Ensure that the numbers that events can have instead of hashes differ, too.
func TestLow64DependsOnTheBlock(t *testing.T) {
	for _, f := range []Function{LE{}, CBOR("0"), NewFast()} {
		var a, b Hash
		f.Sum(&a, &Hash{}, []int32{1}, nil)
		f.Sum(&b, &Hash{}, []int32{2}, nil)
		require.NotEqual(t, a.Low64(), b.Low64(), "%T", f)
	}
}

// Ensure that hashing does not allocate memory, because every block is hashed.
func TestSumDoesNotAllocate(t *testing.T) {
	tokens := slices.Repeat([]int32{1 << 20}, 32) // 5 bytes each in CBOR
	for _, f := range []Function{LE{}, CBOR("0"), NewFast()} {
		var h Hash
		require.Zero(t, testing.AllocsPerRun(100, func() { f.Sum(&h, &h, tokens, nil) }), "%T", f)
	}
}

func BenchmarkSum(b *testing.B) {
	tokens := make([]int32, 16)
	for name, f := range map[string]Function{"le": LE{}, "cbor": CBOR("0"), "fast": NewFast()} {
		b.Run(name, func(b *testing.B) {
			var h Hash
			for b.Loop() {
				f.Sum(&h, &h, tokens, nil)
			}
		})
	}
}
