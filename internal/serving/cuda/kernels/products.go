package kernels

import (
	"fmt"

	"llmmemory/internal/serving/cuda"
)

// Product computes Out[row][output] = the sum over all columns of In[row][column] * weight[output][column].
//
// On GPUs of one generation, the bits of a row's outputs depend only on the row and on the weights. They do not depend
// on the number of rows or of multiprocessors.
type Product struct {
	Weights
	Out, In             cuda.Pointer // [Rows][stride], of the weights' Type unless Float32
	OutStride, InStride int          // elements from row to row; 0 means without gaps
	Rows                int
	Float32             bool // Out is float32

	// If Function is SiLUAndMul or GELUTanhAndMul, the weights are Gated, and a row of Out has half as many elements: the
	// function of the products, rounded to Type, as Activation computes it.
	Function Function

	Plan     ProductPlan
	Parts    cuda.Pointer // ProductPlan.PartBytes bytes
	Arrived  cuda.Pointer // ProductPlan.Counters uint32 that are 0. The kernels leave them 0.
	Unpacked cuda.Pointer // ProductPlan.UnpackedBytes bytes
}

// A ProductPlan selects the kernels of a product, and says how much memory they need besides the
// operands. Products that run one after the other can share this memory.
type ProductPlan struct {
	PartBytes, Counters, UnpackedBytes int

	weights  Weights
	rows     int
	fewRows  bool // the kernel for few rows computes fewRows rows at a time
	threads  int  // of a block
	separate bool // each part of a sum is computed by another block
	chunk    int  // outputs that are unpacked at a time
}

// Sizes of products.h.
const (
	productFewRows = 32
	productStages  = 4
	productColumns = 32       // of a stage
	productChunk   = 64 * 128 // outputs that are unpacked at a time, at most
	productShared  = 16       // bytes of shared memory before the dynamic ones: the variable of last_to_arrive
)

// Plan chooses kernels for a number of rows on a GPU.
func (w Weights) Plan(device cuda.Device, rows int) (ProductPlan, error) {
	p := ProductPlan{weights: w, rows: rows, chunk: w.Outputs}
	c := checker{kernel: "a product", err: w.check()}
	if c.count(rows, "rows"); c.err != nil {
		return p, c.err
	}
	parts := w.parts()
	if p.fewRows = rows <= productFewRows*w.passes(); p.fewRows {
		p.few(device)
		if parts > 1 {
			p.PartBytes, p.Counters = parts*w.tiles()*productFewRows*16*4, w.tiles()*32/p.threads
		}
		return p, nil
	}
	if w.Format != Plain {
		p.chunk = min(w.Outputs, productChunk)
		p.UnpackedBytes = Weights{Type: w.Type, Outputs: p.chunk, Columns: w.Columns}.PackedBytes()
	}
	p.many(device, parts)
	if blocks := p.blocks(p.threads); p.separate {
		p.PartBytes, p.Counters = parts*blocks*p.threads*512, blocks
	}
	return p, nil
}

// passes returns how often the kernel for few rows may read the weights, 32 rows at a time. Unpacked weights are
// read once by the kernel for few rows or by that for many. Other formats are read again as long as this moves fewer
// bytes than to unpack them, which also writes and reads numbers of 16 bits; and at most 5 times.
func (w Weights) passes() int {
	if w.Format == Plain {
		return 1
	}
	return min(5, 1+2*formats[Plain].slab/formats[w.Format].slab)
}

// few sets p.threads for a product of few rows. The shared memory of a multiprocessor limits how many blocks it runs at
// the same time. few chooses the size of a block with which these blocks have the most threads in total, and of several
// such sizes the largest.
func (p *ProductPlan) few(device cuda.Device) {
	most := 0
	for threads := 32; threads <= 256; threads *= 2 {
		q := *p
		if q.threads = threads; p.weights.Gated && threads < 64 {
			continue // one warp has gates, another one what they multiply
		}
		if n := device.SharedMemory / (q.fewMemory(p.rows) + productShared) * threads; n >= most {
			most, p.threads = n, threads
		}
	}
}

// many sets p.threads and p.separate for a product of many rows. A block computes a tile of outputs. It has as many
// threads as the tile has rows. The parameter parts is the number of parts in which each sum is computed.
//
// many chooses the largest of the numbers 256, 128 and 64 that meets three conditions:
//   - The product has more rows than half a tile.
//   - There is a block for every multiprocessor.
//   - The shared memory is large enough for a block that computes all parts of its sums.
//
// If a number meets these conditions, each block computes all parts of its sums. If no number meets these conditions,
// many chooses 128 for more than 64 rows, and 64 otherwise. If sums have several parts, many then also sets p.separate,
// so that a block computes only one part of its sums.
func (p *ProductPlan) many(device cuda.Device, parts int) {
	for p.threads = 256; p.threads >= 64; p.threads /= 2 {
		if p.threads/2 < p.rows && p.blocks(p.threads) >= device.Multiprocessors && p.manyMemory(parts)+productShared <= device.SharedMemory {
			return
		}
	}
	p.threads = 64
	if p.separate = parts > 1; p.rows > 64 {
		p.threads = 128
	}
}

// blocks returns the number of tiles of a chunk of outputs. A tile has 128 outputs, and as many rows as a block has
// threads.
func (p *ProductPlan) blocks(threads int) int { return ceil(p.rows, threads) * ceil(p.chunk, 128) }

// fewMemory returns the bytes of dynamic shared memory that a block needs for some rows, of which it computes at most
// productFewRows.
func (p *ProductPlan) fewMemory(rows int) int {
	f := formats[p.weights.Format]
	return f.stages * (p.threads/32*f.slab + ceil(min(rows, productFewRows), 8)*8*256)
}

// manyMemory returns the bytes of dynamic shared memory that a block needs. The block loads inputs and weights in
// steps. The memory of one step is a stage, and the block has productStages of them. Sums may consist of several parts.
// If the same block adds these parts, it also needs memory for their total.
func (p *ProductPlan) manyMemory(parts int) int {
	stage := (128 + p.threads) * productColumns * 2
	if parts == 1 || p.separate {
		return productStages * stage
	}
	return productStages*stage + p.threads*512
}

// product has the fields of struct Product in products.h.
type product struct {
	out, input, weights, parts, arrived cuda.Pointer
	inStride, outStride                 uint64
	rows, outputs, columns, partsOfSum  int32
	wide, function                      int32
}

// productFunctions has the numbers of products.h.
var productFunctions = map[Function]int32{"": 0, SiLUAndMul: 1, GELUTanhAndMul: 2}

// outputs returns the number of elements of a row of Out.
func (a Product) outputs() int {
	if a.Gated {
		return a.Outputs / 2
	}
	return a.Outputs
}

func (a Product) check() error {
	c := checker{kernel: "a product", err: a.Weights.check(), empty: a.Rows == 0}
	c.require(a.Plan.weights.shape() == a.Weights.shape() && a.Plan.rows == a.Rows,
		" of %d rows with weights %v: the plan is for %d and %v", a.Rows, a.Weights, a.Plan.rows, a.Plan.weights)
	function, known := productFunctions[a.Function]
	c.require(known && (function > 0) == a.Gated && !(a.Gated && a.Float32),
		" with the function %q, float32 outputs %v and gated weights %v: gated weights have silu_and_mul or gelu_tanh_and_mul, others no function", a.Function, a.Float32, a.Gated)
	c.require((a.OutStride == 0 || a.OutStride >= a.outputs()) && (!a.Gated || a.OutStride%8 == 0) && (a.InStride == 0 || a.InStride >= a.Columns) && a.InStride%8 == 0,
		" with strides of %d elements for rows and %d for outputs: they must be 0, or at least %d and a multiple of 8, and at least %d",
		a.InStride, a.OutStride, a.Columns, a.outputs())
	if a.Plan.PartBytes > 0 {
		c.addresses(4, operand{"Arrived", a.Arrived})
		c.addresses(16, operand{"Parts", a.Parts})
	}
	if a.Plan.UnpackedBytes > 0 {
		c.addresses(16, operand{"Unpacked", a.Unpacked})
	}
	c.addresses(16, operand{"Packed", a.Packed}, operand{"In", a.In}, operand{"Out", a.Out})
	return c.err
}

// Launch puts the kernels into a stream.
func (a Product) Launch(set *Set, s *cuda.Stream) error {
	if err := a.check(); err != nil || a.Rows == 0 {
		return err
	}
	arguments := product{out: a.Out, input: a.In, weights: a.Packed, parts: a.Parts, arrived: a.Arrived, inStride: uint64(a.InStride),
		outStride: uint64(a.OutStride), rows: int32(a.Rows), outputs: int32(a.Outputs), columns: int32(a.Columns), partsOfSum: int32(a.parts())}
	if a.InStride == 0 {
		arguments.inStride = uint64(a.Columns)
	}
	if a.OutStride == 0 {
		arguments.outStride = uint64(a.outputs())
	}
	outBytes := a.Type.Bytes()
	if a.Float32 {
		arguments.wide, outBytes = 1, 4
	}
	arguments.function = productFunctions[a.Function]
	p := &a.Plan
	for row := 0; p.fewRows && row < a.Rows; row += productFewRows {
		rows := min(productFewRows, a.Rows-row)
		arguments.rows = int32(rows)
		arguments.out = a.Out + cuda.Pointer(row*int(arguments.outStride)*outBytes)
		arguments.input = a.In + cuda.Pointer(row*int(arguments.inStride)*a.Type.Bytes())
		shape := cuda.Shape{X: a.tiles() * 32 / p.threads, Y: a.parts(), Threads: p.threads, Shared: p.fewMemory(rows)}
		if err := set.launch(s, fmt.Sprintf("product_%v_%v", a.Format, a.Type), shape, arguments); err != nil {
			return err
		}
	}
	for start := 0; !p.fewRows && start < a.Outputs; start += p.chunk {
		arguments.outputs = int32(min(p.chunk, a.Outputs-start))
		arguments.out = a.Out + cuda.Pointer(start*a.outputs()/a.Outputs*outBytes)
		if a.Format != Plain {
			if err := a.unpack(set, s, start, int(arguments.outputs)); err != nil {
				return err
			}
			arguments.weights = a.Unpacked
		}
		shape := cuda.Shape{X: ceil(a.Rows, p.threads), Y: ceil(int(arguments.outputs), 128), Threads: p.threads, Shared: p.manyMemory(a.parts())}
		if p.separate {
			shape.Z = a.parts()
		}
		if err := set.launch(s, fmt.Sprintf("product_plain_%v_many", a.Type), shape, arguments); err != nil {
			return err
		}
	}
	return nil
}

// unpack writes the unpacked weights of the outputs [start, start+n) to Unpacked.
func (a Product) unpack(set *Set, s *cuda.Stream, start, n int) error {
	slab := formats[a.Format].slab
	shape := cuda.Shape{X: ceil(a.slabs(), 8), Y: ceil(n, 128) * 8, Threads: 256, Shared: 8 * slab}
	packed := a.Packed + cuda.Pointer(start/16*a.slabs()*slab)
	return set.launch(s, fmt.Sprintf("unpack_weights_%v_%v", a.Format, a.Type), shape, a.Unpacked, packed, int32(a.slabs()))
}
