package engine

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill gives each exported field a value, and each slice some of them.
func fill(t *testing.T, rnd *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, rnd, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+rnd.IntN(4), 4))
		for i := range v.Len() {
			fill(t, rnd, v.Index(i))
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rnd.Uint64()) >> (64 - v.Type().Bits()))
	default:
		require.Fail(t, "a field of a type that no message has had", v.Type().String())
	}
}

// Ensure that a message arrives with every field, whatever was in the one before.
func TestMessagesArriveWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 2))
	var got message
	for range 200 {
		want := message{from: rnd.IntN(5), to: rnd.IntN(1000)}
		fill(t, rnd, reflect.ValueOf(&want.copies).Elem())
		fill(t, rnd, reflect.ValueOf(&want.fresh).Elem())
		fill(t, rnd, reflect.ValueOf(&want.batch).Elem())
		out := codec{}
		want.visit(&out)
		in := codec{data: out.data, reading: true}
		got.visit(&in)
		require.False(t, in.bad)
		require.Empty(t, in.data)
		require.Equal(t, want, got)
		for cut := range out.data {
			broken := codec{data: out.data[:cut], reading: true}
			new(message).visit(&broken)
			require.True(t, broken.bad, "%d of %d bytes", cut, len(out.data))
		}
	}
	require.Equal(t, 5, reflect.TypeFor[message]().NumField(), "those that are filled above")
}
