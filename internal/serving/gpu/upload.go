package gpu

import (
	"errors"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
)

// An upload sends weights to the GPU through pinned memory, some rows at a time. While the GPU packs one
// piece, the pool writes the next piece. After the first error, its methods do nothing.
type upload struct {
	*Model
	launcher
	pool  *parallel.Pool
	slots [2]slot
	next  int
}

// A slot has memory on the host and on the GPU. This is the memory for one piece, which consists of some rows of a
// matrix.
type slot struct {
	host *cuda.Pinned
	rows *cuda.Memory
	used *cuda.Event // the GPU has read the slot
}

// pieceBytes is the largest size of a piece, unless the rows of one unit (see pieces) are larger.
const pieceBytes = 16 << 20

// vector sends numbers in the activations' type, and returns their address. If there are none, it returns 0.
func (u *upload) vector(values []float32) cuda.Pointer {
	data := make([]byte, 2*len(values))
	encode(u.kind, values, data)
	return u.contents(data)
}

// floats sends numbers as float32, and returns their address. If there are none, it returns 0.
func (u *upload) floats(values []float32) cuda.Pointer { return u.contents(bytesOf(values)) }

func (u *upload) contents(data []byte) cuda.Pointer {
	if len(data) == 0 {
		return 0
	}
	m := u.alloc(len(data))
	u.try(func() error { return m.Write(0, data) })
	return m.Pointer()
}

func (u *upload) normOf(n model.NormSource) norm { return norm{u.vector(n.Weight), u.vector(n.Bias)} }

// headNorm sends the weights of a norm of heads.
func (u *upload) headNorm(values []float32) cuda.Pointer {
	values = u.padHeads(values)
	for i := range values {
		values[i] *= u.headWeight()
	}
	return u.vector(values)
}

func round(kind kernels.Type, v float32) uint16 {
	if kind == kernels.BF16 {
		return half.ToBF16(v)
	}
	return half.ToF16(v)
}

// pieces divides rows into pieces, and sends one piece after the other to the GPU. The parameter count is the number
// of rows, and size is the number of bytes of a row. The number of rows of a piece is a multiple of unit, except in
// the last piece. The function fill writes consecutive rows to data; start is the index of the first of them. Several
// goroutines call fill. The function deliver moves the rows [start, start+n), which are a piece, from the slot to
// their place in the GPU's memory.
func (u *upload) pieces(count, size, unit int, fill func(start int, data []byte), deliver func(s *slot, start, n int) error) {
	pieceRows := max(pieceBytes/size/unit, 1) * unit
	for start := 0; start < count && u.err == nil; start += pieceRows {
		n := min(pieceRows, count-start)
		s := u.take(n * size)
		if u.err != nil {
			return
		}
		u.pool.Run((n+taskRows-1)/taskRows, &filling{start, size, s.host.Bytes()[:n*size], fill})
		u.try(func() error { return u.stream.Upload(s.rows, 0, s.host, 0, n*size) })
		u.try(func() error { return deliver(s, start, n) })
		u.try(func() error { return u.stream.Record(s.used) })
	}
}

// taskRows is the number of rows that a task fills.
const taskRows = 64

type filling struct {
	start, size int
	data        []byte
	fill        func(start int, data []byte)
}

// Do fills some rows; see parallel.Task.
func (f *filling) Do(_, i int) {
	start := i * taskRows * f.size
	f.fill(f.start+i*taskRows, f.data[start:min(start+taskRows*f.size, len(f.data))])
}

// take returns a slot of at least size bytes. It waits until the GPU no longer uses the slot.
func (u *upload) take(size int) *slot {
	s := &u.slots[u.next%len(u.slots)]
	u.next++
	if s.used != nil {
		u.err = s.used.Synchronize()
	}
	if u.err != nil || s.rows != nil && s.rows.Size() >= size {
		return s
	}
	u.err = s.close()
	u.try(func() (err error) { s.host, err = u.context.AllocPinned(size); return err })
	u.try(func() (err error) { s.rows, err = u.context.Alloc(size); return err })
	u.try(func() (err error) { s.used, err = u.context.NewEvent(false); return err })
	return s
}

func (s *slot) close() error {
	err := errors.Join(s.host.Close(), s.rows.Close(), s.used.Close())
	*s = slot{}
	return err
}

func (u *upload) close() error { return errors.Join(u.slots[0].close(), u.slots[1].close()) }
