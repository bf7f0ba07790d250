package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/testkit/cudatest"
)

// Ensure that the error for each missing requirement is one sentence that says what to do.
func TestAMachineThatCannotRunKernelsIsRefused(t *testing.T) {
	d := cudatest.Open(t)
	open := func() error {
		driver, err := cuda.Open(d.Path)
		if err != nil {
			return err
		}
		c, err := driver.NewContext(0)
		if err != nil {
			return err
		}
		_, err = c.LoadModule("test", ".version 7.4\n.target sm_80\n")
		require.NoError(t, c.Close())
		return err
	}
	require.NoError(t, open())
	for _, c := range []struct {
		name, setting string
		value         int
		is            error
		says          string
	}{
		{"no GPU", "devices", 0, cuda.ErrNoGPU, "no GPU: cannot initialize the driver: cuInit returned CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected: nvidia-smi lists the GPUs that the driver sees; CUDA_VISIBLE_DEVICES may hide some"},
		{"old GPU", "compute_capability", 75, cuda.ErrOldGPU, "the GPU is too old: GPU 0 (Emulated GPU 0) has compute capability 7.5: use one with 8.0 or higher (Ampere, 2020, or newer)"},
		{"old driver", "driver_version", 11020, cuda.ErrOldDriver, "the NVIDIA driver is too old: it supports CUDA 11.2: install release 470 (CUDA 11.4) or newer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.Forget()
			d.Set(t, c.setting, c.value)
			err := open()
			require.ErrorIs(t, err, c.is)
			require.EqualError(t, err, c.says)
		})
	}
	d.Forget()
	_, err := cuda.Open("libm.so.6") // a library without a function that the package needs, such as an old driver
	require.ErrorIs(t, err, cuda.ErrOldDriver)
	require.EqualError(t, err, "the NVIDIA driver is too old: libm.so.6 has no cuInit: install release 470 or newer")
	_, err = cuda.Open("libnot-there.so.1")
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "no NVIDIA driver: cannot load libnot-there.so.1: install NVIDIA's driver")
}
