package engine

import (
	"bytes"
	"encoding/gob"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill gives each exported field a random value, and each slice a few elements.
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
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Uint8:
		v.SetUint(rnd.Uint64() >> 56)
	default:
		require.Fail(t, "a field of a type that no message has had", v.Type().String())
	}
}

// Ensure that messages arrive complete and in order. An incomplete message is refused.
func TestMessagesArriveWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 2))
	var data bytes.Buffer
	encoder, decoder := gob.NewEncoder(&data), gob.NewDecoder(&data)
	for range 200 {
		var want, got message
		fill(t, rnd, reflect.ValueOf(&want).Elem())
		require.NoError(t, encoder.Encode(want))
		require.NoError(t, decoder.Decode(&got))
		require.Zero(t, data.Len())
		require.Equal(t, want, got)
	}
	var whole bytes.Buffer
	require.NoError(t, gob.NewEncoder(&whole).Encode(message{Kind: computeStep, Blocks: []int32{1, 2}}))
	for cut := range whole.Len() {
		w, l := &worker{}, &oneMessage{message: whole.Bytes()[:cut]}
		require.ErrorIs(t, w.follow(1, 8, l), errMessage, "%d of %d bytes", cut, whole.Len())
	}
}

// A oneMessage is a Leader that sends one message.
type oneMessage struct {
	Leader
	message []byte
}

func (p *oneMessage) Receive(int) ([]byte, error) { return p.message, nil }
