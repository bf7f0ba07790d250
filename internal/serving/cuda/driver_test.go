package cuda_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/testkit/cudatest"
)

// Ensure that the error for each missing requirement is one sentence, and tells the user what to do.
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
		target        error
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
			require.ErrorIs(t, err, c.target)
			require.EqualError(t, err, c.says)
		})
	}
	d.Forget()
	_, err := cuda.Open("libm.so.6")
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.EqualError(t, err, "no NVIDIA driver: libm.so.6 has no cuInit: install NVIDIA's driver again")
	for name, content := range map[string]string{"empty": "", "junk": strings.Repeat("junk", 1000)} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err = cuda.Open(path)
		require.ErrorIs(t, err, cuda.ErrNoDriver)
		require.ErrorContains(t, err, "no NVIDIA driver: "+path+" was found, but cannot be loaded: install NVIDIA's driver again ("+path+": ")
	}
	for status, says := range map[int]string{
		803: "cannot initialize the driver: cuInit returned CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver / cuda driver combination: " +
			"the library and the kernel's module are of different releases: restart the machine; in a container, use the host's library",
		804: "cannot initialize the driver: cuInit returned CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804): forward compatibility was attempted on non supported HW: " +
			"remove CUDA's compatibility library (cuda-compat) from the container, or install a newer driver",
		802: "cannot initialize the driver: cuInit returned an unknown error (802): the driver does not describe it: " +
			"start NVIDIA's fabric manager (nvidia-fabricmanager), which GPUs that are connected by NVSwitch need",
		34: "cannot initialize the driver: cuInit returned an unknown error (34): the driver does not describe it: " +
			"the library is the CUDA toolkit's stub: remove its folder from LD_LIBRARY_PATH, so that the driver's is found",
		999: "cannot initialize the driver: cuInit returned an unknown error (999): the driver does not describe it: " +
			"nvidia-smi shows whether the driver works; if its kernel module was replaced, restart the machine",
	} {
		d.Fail("cuInit", status)
		require.EqualError(t, open(), says)
	}
	d.Fail("cuDevicePrimaryCtxRetain", 46)
	require.EqualError(t, open(), "cannot use GPU 0 (Emulated GPU 0): cuDevicePrimaryCtxRetain returned an unknown error (46): the driver does not describe it: "+
		"end the program that uses the GPU in exclusive mode, or, with MIG, create an instance (nvidia-smi shows both)")
	_, err = cuda.Open("libnot-there.so.1")
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "no NVIDIA driver: cannot load libnot-there.so.1: install NVIDIA's driver")
}

// Ensure that the error of a library that is missing is found when goroutines change their threads.
func TestAMissingDriverIsNamedOnEachThread(t *testing.T) {
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for range 100 {
				_, err := cuda.Open("libnot-there.so.1")
				assert.ErrorContains(t, err, "no NVIDIA driver: cannot load libnot-there.so.1")
			}
		})
	}
	group.Wait()
}
