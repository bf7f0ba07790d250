package cuda_test

import (
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/testkit/cudatest"
)

func TestDevicesAreDescribed(t *testing.T) {
	d := cudatest.Open(t)
	d.Set(t, "devices", 2)
	d.Set(t, "compute_capability", 89)
	driver, err := cuda.Open(d.Path)
	require.NoError(t, err)
	require.Equal(t, 13000, driver.Version())
	devices, err := driver.Devices()
	require.NoError(t, err)
	require.Len(t, devices, 2)
	g := devices[1]
	require.Equal(t, []any{1, "Emulated GPU 1", 8, 9, 1 << 30, 4}, []any{g.Ordinal, g.Name, g.Major, g.Minor, g.Memory, g.Multiprocessors})
	_, err = driver.NewContext(2)
	require.ErrorIs(t, err, cuda.ErrNoGPU)
	require.EqualError(t, err, "no GPU: there is no GPU 2 among 2: numbers begin at 0")
}

// Ensure that the error of each failed call names the operation. If a context cannot be created, nothing may remain
// allocated.
func TestAFailedCallIsNamed(t *testing.T) {
	d := cudatest.Open(t)
	driver, err := cuda.Open(d.Path)
	require.NoError(t, err)
	d.Fail("cuCtxSetCurrent", 999)
	_, err = driver.NewContext(0)
	require.EqualError(t, err, "cannot use GPU 0 (Emulated GPU 0): cuCtxSetCurrent returned an unknown error (999): the driver does not describe it")
	require.Equal(t, 1, d.Calls("cuDevicePrimaryCtxRelease_v2"))

	g := newGPU(t)
	g.Fail("cuMemAlloc_v2", 1)
	_, err = g.context.Alloc(3 << 20)
	require.EqualError(t, err, "cannot allocate 3.0 MiB of GPU memory: cuMemAlloc_v2 returned CUDA_ERROR_INVALID_VALUE (1): invalid argument")
	var failed *cuda.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Status)
}

func TestTooLittleMemorySaysHowMuchIsFree(t *testing.T) {
	g := newGPU(t)
	m, err := g.context.Alloc(900 << 20)
	require.NoError(t, err)
	_, err = g.context.Alloc(200 << 20)
	require.ErrorIs(t, err, cuda.ErrOutOfMemory)
	require.EqualError(t, err, "cannot allocate 200.0 MiB of GPU memory: cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY (2): out of memory "+
		"(124.0 MiB of 1.0 GiB are free: use less memory for keys and values, a smaller model, or end other programs on this GPU)")
	require.NoError(t, m.Close())
	free, total, err := g.context.MemoryLeft()
	require.NoError(t, err)
	require.Equal(t, []int{1 << 30, 1 << 30}, []int{free, total})
	for _, size := range []int{0, -1} {
		_, err = g.context.Alloc(size)
		require.ErrorContains(t, err, "a size is positive")
		_, err = g.context.AllocPinned(size)
		require.ErrorContains(t, err, "a size is positive")
	}
}

func TestPTXThatTheDriverCannotReadIsRefused(t *testing.T) {
	g := newGPU(t)
	_, err := g.context.LoadModule("new", ".version 9.9\n.target sm_80\n")
	require.ErrorIs(t, err, cuda.ErrOldDriver)
	require.ErrorContains(t, err, "cannot load the kernels of new: cuModuleLoadDataEx returned CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)")
	require.ErrorContains(t, err, "install NVIDIA's driver of release 470 or newer")
	_, err = g.context.LoadModule("newer GPUs", ".version 7.4\n.target sm_100\n")
	require.ErrorIs(t, err, cuda.ErrOldGPU)
	_, err = g.context.LoadModule("nothing", "")
	require.EqualError(t, err, "cannot load the kernels of nothing: cuModuleLoadDataEx returned CUDA_ERROR_INVALID_PTX (218): a PTX JIT compilation failed: "+
		"ptxas fatal   : Missing .version directive at start of file")
}

// Ensure that all calls are made on the context's thread, whichever goroutine asks for them.
func TestAContextIsUsedFromAnyGoroutine(t *testing.T) {
	g := newGPU(t)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			m, err := g.context.Alloc(100)
			if err == nil {
				err = g.context.Do(func() error { return errors.Join(m.Write(0, []byte("abc")), m.Close()) })
			}
			errs[i] = err
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Zero(t, g.Allocated())
}

// Ensure that a caller can close what it could not create.
func TestClosingNilDoesNothing(t *testing.T) {
	for _, c := range []io.Closer{(*cuda.Memory)(nil), (*cuda.Pinned)(nil), (*cuda.Stream)(nil), (*cuda.Event)(nil), (*cuda.Graph)(nil)} {
		require.NoError(t, c.Close(), "%T", c)
	}
}

// Ensure that all calls after Close return an error, also a second Close. Goroutines that use the context during Close
// must get an error too.
func TestAClosedContextRefusesCalls(t *testing.T) {
	d := cudatest.Open(t)
	driver, err := cuda.Open(d.Path)
	require.NoError(t, err)
	c, err := driver.NewContext(0)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for c.Synchronize() == nil {
			}
		})
	}
	require.NoError(t, c.Close())
	wg.Wait()
	require.EqualError(t, c.Close(), "the context of GPU 0 is closed")
	_, err = c.Alloc(4)
	require.EqualError(t, err, "the context of GPU 0 is closed")
}

// Ensure that copies go where they should, and nowhere else.
func TestCopiesStayInTheirMemory(t *testing.T) {
	g := newGPU(t)
	m, other := g.memory(1, 2, 3, 4), g.memory(5, 6, 7, 8)
	pinned, err := g.context.AllocPinned(16)
	require.NoError(t, err)
	copy(pinned.Bytes(), "0123456789abcdef")
	require.NoError(t, g.stream.Upload(m, 4, pinned, 0, 4))
	require.NoError(t, g.stream.Copy(other, 0, m, 4, 8))
	require.NoError(t, g.stream.Fill(m, 12, 4, 0x11))
	require.NoError(t, g.stream.Download(pinned, 8, other, 8, 8))
	require.NoError(t, g.stream.Synchronize())
	require.Equal(t, []uint32{1, 0x33323130, 3, 0x11111111}, g.words(m))
	require.Equal(t, []uint32{0x33323130, 3, 7, 8}, g.words(other))
	require.Equal(t, "01234567\x07\x00\x00\x00\x08\x00\x00\x00", string(pinned.Bytes()))
	for name, err := range map[string]error{
		"write": m.Write(13, make([]byte, 4)), "read": m.Read(-1, make([]byte, 1)), "fill": g.stream.Fill(m, 0, 17, 0),
		"upload": g.stream.Upload(m, 0, pinned, 10, 7), "download": g.stream.Download(pinned, 17, m, 0, 0), "copy": g.stream.Copy(m, 1, other, 0, 16),
	} {
		require.ErrorContains(t, err, "are not in", name)
	}
	require.NoError(t, errors.Join(pinned.Close(), m.Close(), other.Close()))
}

// Ensure that a write is complete when it returns. If memory is not pinned, the driver copies it in two steps. The
// streams of this package do not wait for the second step, so Write must wait for it.
func TestAStreamSeesWhatWasWrittenBefore(t *testing.T) {
	g := newGPU(t)
	pinned, err := g.context.AllocPinned(4)
	require.NoError(t, err)
	m := g.memory(0)
	require.NoError(t, m.Write(0, []byte("abcd")))
	require.NoError(t, errors.Join(g.stream.Download(pinned, 0, m, 0, 4), g.stream.Synchronize()))
	require.Equal(t, "abcd", string(pinned.Bytes()))
	require.NoError(t, errors.Join(pinned.Close(), m.Close()))
}

// Ensure that the emulator delays the work of a stream until the program waits for it. A GPU may do this too. An event
// must order the work of two streams.
func TestEventsOrderStreams(t *testing.T) {
	g := newGPU(t)
	second, err := g.context.NewStream()
	require.NoError(t, err)
	begin, err := g.context.NewEvent(true)
	require.NoError(t, err)
	end, err := g.context.NewEvent(true)
	require.NoError(t, err)
	m := g.memory(1)
	require.NoError(t, errors.Join(g.stream.Record(begin), g.stream.Fill(m, 0, 4, 0), g.stream.Record(end)))
	require.Equal(t, []uint32{1}, g.words(m), "a copy that does not wait for the stream")
	done, err := end.Done()
	require.NoError(t, err)
	require.False(t, done)
	require.NoError(t, errors.Join(second.Wait(end), second.Fill(m, 0, 1, 7), second.Synchronize()))
	require.Equal(t, []uint32{7}, g.words(m))
	done, err = end.Done()
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, errors.Join(end.Synchronize(), g.context.Synchronize()))
	ms, err := end.Elapsed(begin)
	require.NoError(t, err)
	require.GreaterOrEqual(t, ms, float32(0))
	blocking, err := g.context.NewBlockingEvent()
	require.NoError(t, err)
	require.Equal(t, 1, g.Calls("cuEventCreate of a blocking event"))
	require.NoError(t, errors.Join(blocking.Close(), begin.Close(), end.Close(), second.Close(), m.Close()))
}

// Ensure that a graph runs when it is launched, not when it is captured, and uses the arguments of the
// capture.
func TestAGraphRepeatsWhatWasCaptured(t *testing.T) {
	g := newGPU(t)
	m := g.memory(0, 0, 0)
	write := g.kernel("write_at", "u64", "u32")
	graph, err := g.stream.Capture(func() error {
		return errors.Join(write.Launch(g.stream, cuda.Shape{X: 1, Threads: 32}, m.Pointer(), int32(1)), g.stream.Fill(m, 8, 4, 1))
	})
	require.NoError(t, err)
	require.NoError(t, g.stream.Synchronize())
	require.Equal(t, []uint32{0, 0, 0}, g.words(m))
	for range 2 {
		require.NoError(t, m.Write(0, make([]byte, 12)))
		require.NoError(t, errors.Join(graph.Launch(g.stream), g.stream.Synchronize()))
		require.Equal(t, []uint32{0, 7, 0x01010101}, g.words(m))
	}
	require.NoError(t, graph.Close())

	_, err = g.stream.Capture(func() error {
		_, err := g.context.Alloc(4)
		return err
	})
	require.ErrorContains(t, err, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)")
	mistake := errors.New("mistake")
	_, err = g.stream.Capture(func() error { return mistake })
	require.ErrorIs(t, err, mistake)
	require.NoError(t, errors.Join(g.stream.Fill(m, 0, 4, 2), g.stream.Synchronize()), "the stream is not captured any more")
	require.Equal(t, uint32(0x02020202), g.words(m)[0])
}

// Ensure that a launch is refused if the kernel does not accept its arguments or its shape.
func TestLaunchesAreChecked(t *testing.T) {
	g := newGPU(t)
	k := g.kernel("write_at", "u64", "u32")
	m := g.memory(0)
	p := m.Pointer()
	shape := cuda.Shape{X: 1, Threads: 32}
	require.EqualError(t, k.Launch(g.stream, shape, p), "the kernel write_at has 2 parameters, not 1")
	require.EqualError(t, k.Launch(g.stream, shape, p, int64(1)), "argument 1 of the kernel write_at is of type int64 with 8 bytes, the parameter has 4")
	require.EqualError(t, k.Launch(g.stream, shape, m, int32(1)), "argument 0 of the kernel write_at is of type *cuda.Memory, not a number or cuda.Pointer")
	require.ErrorContains(t, k.Launch(g.stream, shape, p, nil), "argument 1 of the kernel write_at is nil")
	for _, shape := range []cuda.Shape{{X: 0, Threads: 32}, {X: -1, Threads: 32}, {X: 1 << 31, Threads: 32}, {X: 1, Y: 1 << 16, Threads: 32}, {X: 1, Z: 1 << 16, Threads: 32}} {
		require.ErrorContains(t, k.Launch(g.stream, shape, p, int32(1)), "blocks: there may be 1 to 2147483647 x 65535 x 65535")
	}
	require.ErrorContains(t, k.Launch(g.stream, cuda.Shape{X: 1, Threads: 1056}, p, int32(0)), "cannot launch the kernel write_at: cuLaunchKernel returned CUDA_ERROR_INVALID_VALUE (1)")
	require.ErrorContains(t, k.Launch(g.stream, cuda.Shape{X: 1, Threads: 32, Shared: 50 << 10}, p, int32(0)), "CUDA_ERROR_INVALID_VALUE")
	calls := g.Calls("cuFuncSetAttribute")
	require.NoError(t, k.AllowShared(50<<10))
	require.Equal(t, calls+2, g.Calls("cuFuncSetAttribute"), "the limit and the carve-out")
	require.NoError(t, k.Launch(g.stream, cuda.Shape{X: 1, Threads: 32, Shared: 50 << 10}, p, int32(0)))
	require.NoError(t, g.stream.Synchronize())
	require.ErrorContains(t, k.AllowShared(300<<10), "cannot allow the kernel write_at 307200 bytes of shared memory")
	needs, err := k.Needs()
	require.NoError(t, err)
	require.Equal(t, cuda.Needs{Registers: 32, MaxThreads: 1024}, needs)
	loaded, err := g.context.LoadModule("limited", ".version 7.4\n.target sm_80\n.visible .entry write_at(\n\t.param .align 8 .b8 write_at_param_0[24]\n)\n.maxntid 64, 1, 1\n{\n}\n")
	require.NoError(t, err)
	limited, err := loaded.Kernel("write_at")
	require.NoError(t, err)
	require.ErrorContains(t, limited.Launch(g.stream, cuda.Shape{X: 1, Threads: 96}, [3]uint64{}), "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
	_, err = loaded.Kernel("read_at")
	require.EqualError(t, err, "the PTX has no kernel read_at")
	require.NoError(t, loaded.Close())
}
