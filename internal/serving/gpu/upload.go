package gpu

import (
	"errors"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
)

// An upload sends weights to the GPU through pinned memory, in pieces of some rows. While the GPU packs a piece, the
// pool writes the next one. After the first error, its methods do nothing.
type upload struct {
	*Model
	pool  *parallel.Pool
	slots [2]slot
	next  int
	err   error
}

// A slot has the memory for one piece, on the host and on the GPU.
type slot struct {
	host *cuda.Pinned
	rows *cuda.Memory
	used *cuda.Event // the GPU has read the slot
}

// pieceBytes is the most bytes that are uploaded at a time, unless the rows of one unit have more (see pieces).
const pieceBytes = 16 << 20

// alloc allocates memory of the weights.
func (u *upload) alloc(size int) *cuda.Memory {
	if u.err != nil {
		return nil
	}
	m, err := u.device.context.Alloc(size)
	if err != nil {
		u.err = err
		return nil
	}
	u.memory = append(u.memory, m)
	return m
}

// vector sends numbers in the activations' type. It returns 0 if there are none.
func (u *upload) vector(values []float32) cuda.Pointer {
	data := make([]byte, 2*len(values))
	encode(u.kind, values, data)
	return u.contents(data)
}

// floats sends numbers in float32. It returns 0 if there are none.
func (u *upload) floats(values []float32) cuda.Pointer { return u.contents(bytesOf(values)) }

func (u *upload) contents(data []byte) cuda.Pointer {
	if len(data) == 0 {
		return 0
	}
	m := u.alloc(len(data))
	if u.err != nil {
		return 0
	}
	u.err = m.Write(0, data)
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

// pieces sends count rows of size bytes. fill writes the rows from first on, on several goroutines. deliver moves the n
// rows from first on from the slot to their place. A piece has a multiple of unit rows, unless it is the last.
func (u *upload) pieces(count, size, unit int, fill func(first int, data []byte), deliver func(s *slot, first, n int) error) {
	most := max(pieceBytes/size/unit, 1) * unit
	for first := 0; first < count && u.err == nil; first += most {
		n := min(most, count-first)
		s := u.take(n * size)
		if u.err != nil {
			return
		}
		stream := u.device.stream
		u.pool.Run((n+taskRows-1)/taskRows, &filling{first, size, s.host.Bytes()[:n*size], fill})
		u.err = stream.Upload(s.rows, 0, s.host, 0, n*size)
		if u.err == nil {
			u.err = deliver(s, first, n)
		}
		if u.err == nil {
			u.err = stream.Record(s.used)
		}
	}
}

// taskRows is the number of rows that a task fills.
const taskRows = 64

type filling struct {
	first, size int
	data        []byte
	fill        func(first int, data []byte)
}

// Do fills some rows; see parallel.Task.
func (f *filling) Do(_, i int) {
	from := i * taskRows * f.size
	f.fill(f.first+i*taskRows, f.data[from:min(from+taskRows*f.size, len(f.data))])
}

// take returns a slot of at least size bytes that the GPU does not use.
func (u *upload) take(size int) *slot {
	s := &u.slots[u.next%len(u.slots)]
	u.next++
	if s.used != nil {
		u.err = s.used.Synchronize()
	}
	if u.err != nil || s.rows != nil && s.rows.Size() >= size {
		return s
	}
	if u.err = s.close(); u.err != nil {
		return s
	}
	var errs [3]error
	c := u.device.context
	s.host, errs[0] = c.AllocPinned(size)
	s.rows, errs[1] = c.Alloc(size)
	s.used, errs[2] = c.NewEvent(false)
	u.err = errors.Join(errs[:]...)
	return s
}

func (s *slot) close() error {
	err := errors.Join(s.host.Close(), s.rows.Close(), s.used.Close())
	*s = slot{}
	return err
}

func (u *upload) close() error { return errors.Join(u.slots[0].close(), u.slots[1].close()) }
