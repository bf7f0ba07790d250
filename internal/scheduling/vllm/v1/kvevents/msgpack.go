package kvevents

import (
	"encoding/binary"
	"math"
)

// MessagePack in its shortest forms, which is what msgspec writes.

func appendNil(b []byte) []byte { return append(b, 0xc0) }

func appendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

func appendUint(b []byte, v uint64) []byte {
	be := binary.BigEndian
	switch {
	case v < 1<<7:
		return append(b, byte(v))
	case v < 1<<8:
		return append(b, 0xcc, byte(v))
	case v < 1<<16:
		return be.AppendUint16(append(b, 0xcd), uint16(v))
	case v < 1<<32:
		return be.AppendUint32(append(b, 0xce), uint32(v))
	}
	return be.AppendUint64(append(b, 0xcf), v)
}

func appendInt(b []byte, v int64) []byte {
	be := binary.BigEndian
	switch {
	case v >= 0:
		return appendUint(b, uint64(v))
	case v >= -1<<5:
		return append(b, byte(v))
	case v >= -1<<7:
		return append(b, 0xd0, byte(v))
	case v >= -1<<15:
		return be.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= -1<<31:
		return be.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return be.AppendUint64(append(b, 0xd3), uint64(v))
}

// appendLength appends the type and the length of a value. If n is below limit, this is one byte, which combines the
// bits of shortType and of n. Otherwise, if n has at most 16 bits, it is the byte longType and 16 bits of length. If n
// has more, it is the byte longType+1 and 32 bits of length.
func appendLength(b []byte, n, limit int, shortType, longType byte) []byte {
	switch {
	case n < limit:
		return append(b, shortType|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, longType), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, longType+1), uint32(n))
}

func appendArray(b []byte, n int) []byte { return appendLength(b, n, 16, 0x90, 0xdc) }

func appendMap(b []byte, n int) []byte { return appendLength(b, n, 16, 0x80, 0xde) }

func appendText(b []byte, s string) []byte {
	if n := len(s); n >= 32 && n < 1<<8 {
		b = append(b, 0xd9, byte(n))
	} else {
		b = appendLength(b, n, 32, 0xa0, 0xda)
	}
	return append(b, s...)
}

func appendBytes(b, s []byte) []byte {
	if n := len(s); n < 1<<8 {
		b = append(b, 0xc4, byte(n))
	} else {
		b = appendLength(b, n, 0, 0, 0xc5)
	}
	return append(b, s...)
}
