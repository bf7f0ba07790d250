package blockhash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func item(id string, offset int64) Key {
	return Key{Kind: Tuple, Tuple: []Key{{Text: id}, {Kind: Int, Int: offset}}}
}

// The first block contains two items, two items cross the end of a block, and the last block contains no item.
func TestItemsNameEveryBlockThatTheyReach(t *testing.T) {
	e := Extras{
		Salt:  "s2",
		Items: []Item{{"imgA", 4, 16}, {"imgB", 25, 14}, {"imgA", 66, 3}, {"imgA", 84, 31}},
	}
	var at Cursor
	require.Equal(t, []Key{item("imgA", 4), item("imgB", 25), {Text: "s2"}}, e.Block(0, 32, &at))
	require.Equal(t, []Key{item("imgB", -7)}, e.Block(32, 64, &at))
	require.Equal(t, []Key{item("imgA", 2), item("imgA", 20)}, e.Block(64, 96, &at))
	require.Equal(t, []Key{item("imgA", -12)}, e.Block(96, 128, &at))
	require.Nil(t, e.Block(128, 160, &at))
}

func TestALaterRunStartsAtTheLastItem(t *testing.T) {
	e := Extras{Items: []Item{{"a", 0, 100}, {"b", 100, 20}}}
	at := Last
	require.Nil(t, e.Block(64, 96, &at), "a lies here, but the run does not look at it")
	at = Last
	require.Equal(t, []Key{item("b", 4)}, e.Block(96, 112, &at))
	at = Last
	require.Nil(t, e.Block(120, 136, &at))
}

func TestKeysAreInVLLMsOrder(t *testing.T) {
	e := Extras{LoRA: "ada", Salt: "s", Items: []Item{{"i", 1, 1}}}
	var at Cursor
	require.Equal(t, []Key{{Text: "ada"}, item("i", 1), {Text: "s"}}, e.Block(0, 2, &at))
	require.Equal(t, []Key{{Text: "ada"}}, e.Block(2, 4, &at))
	require.Nil(t, new(Extras).Block(0, 16, &at))
}

func TestItemsThatHideEachOtherAreRefused(t *testing.T) {
	require.NoError(t, (&Extras{Items: []Item{{"a", 0, 4}, {"b", 4, 1}}}).Check())
	for _, bad := range []Extras{
		{Items: []Item{{"a", 0, 5}, {"b", 4, 1}}},
		{Items: []Item{{"a", 9, 5}, {"b", 4, 1}}},
		{Items: []Item{{"a", -1, 5}}},
		{Items: []Item{{"a", 0, 0}}},
	} {
		require.Error(t, bad.Check(), "%+v", bad)
	}
}

func TestAnItemBelongsToTheBlocksOfItsTokens(t *testing.T) {
	e := Extras{Items: []Item{{"a", 4, 4}, {"b", 8, 1}}}
	at := Cursor(0)
	for block, want := range [][]Key{
		nil,
		{item("a", 0)},
		{item("b", 0)},
		nil,
	} {
		require.Equal(t, want, e.Block(4*block, 4*block+4, &at), "block %d", block)
	}
}
