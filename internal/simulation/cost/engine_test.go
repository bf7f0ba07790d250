package cost

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the engine's constants, fitted to one half of the published points")

// The published points of a GPU are divided into two halves: the constants in vllm.json are fitted to one half, and the
// other half tests them. Ensure that the stored constants fit the first half better than constants with 30 % less
// Weights and Compute. Ensure that the errors on the second half, which the library reports, are at most 15 % in the
// median and at most 35 % for each point.
func TestTheEngineIsNearItsPublishedFigures(t *testing.T) {
	if *update {
		fitEngine(t)
		t.Skip("written; now run TestHeldOutPointsHaveTheirPredictions with -update")
	}
	for _, gpu := range MeasuredGPUs() {
		fitted, heldOut := halves(gpu)
		require.InDelta(t, len(fitted), len(heldOut), 1, gpu)
		for _, p := range fitted {
			require.NotContains(t, heldOut, p)
		}
		f := engineOn(t, gpu)
		t.Log(f)
		require.True(t, f.HeldOut.Points >= MinPoints)
		require.LessOrEqual(t, f.HeldOut.Median, 0.15, gpu)
		require.LessOrEqual(t, f.HeldOut.Worst, 0.35, gpu)
		minimum, _ := errorsWith(t, fitted, f.Engine)
		e := f.Engine
		e.Weights *= 0.7
		e.Compute *= 0.7
		other, _ := errorsWith(t, fitted, e)
		require.Greater(t, other.Median, minimum.Median, "%s: other constants fit worse", gpu)
	}
}

// fitEngine writes vllm.json. The constants of other GPUs stay.
func fitEngine(t *testing.T) {
	f := openVLLM()
	fitted := fitPoints(t, fittedHalves())
	for _, gpu := range fitted.gpus {
		f.GPUs[gpu] = fitted.engineOf(gpu)
	}
	f.Elsewhere.Constants, f.Elsewhere.LeftOut = fitted.common(), withoutEach(t)
	text, err := json.MarshalIndent(f, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("vllm.json", append(text, '\n'), 0o644))
}

// withoutEach leaves out one GPU after the other. It fits constants to the points of all other GPUs, and returns the
// errors of these constants on the points of the GPU that was left out.
func withoutEach(t *testing.T) map[string]Fit {
	all := map[string]Fit{}
	for _, gpu := range MeasuredGPUs() {
		others := slices.DeleteFunc(fittedHalves(), func(p measurement) bool { return p.GPU == gpu })
		fit, worst := errorsWith(t, slices.Concat(halves(gpu)), fitPoints(t, others).common())
		t.Logf("%s without its points: %s, worst %s", gpu, fit, worst)
		all[gpu] = fit
	}
	return all
}

// For a GPU without published points, the library takes constants that were fitted to other GPUs. vllm.json says how
// exact such constants are. It lists errors for each GPU with points: the constants were fitted to half of the points
// of the other GPUs, and then predicted all points of this GPU. Ensure that withoutEach computes the same errors, and
// that published/README.md has them.
func TestV1IsPredictedOnGPUsItWasNotFittedTo(t *testing.T) {
	leftOut, stated := withoutEach(t), openVLLM().Elsewhere.LeftOut
	require.Len(t, stated, len(leftOut))
	text, err := os.ReadFile("published/README.md")
	require.NoError(t, err)
	for gpu, fit := range leftOut {
		require.InDelta(t, fit.Median, stated[gpu].Median, 1e-3, gpu)
		require.InDelta(t, fit.Worst, stated[gpu].Worst, 1e-2, gpu)
		require.LessOrEqual(t, fit.Median, 0.15, gpu)
		row := fmt.Sprintf("| %s | %d | %.0f %% | %.0f %% |", gpu, fit.Points, 100*stated[gpu].Median, 100*stated[gpu].Worst)
		require.True(t, strings.Contains(string(text), row), row)
	}
	for _, gpu := range OtherGPUs() {
		require.Contains(t, engineOn(t, gpu).String(), "vllm 0.10-0.20 on "+gpu+": not fitted on this GPU; constants as "+
			"measured on a100-80gb, b200-180gb, h100-80gb, h200-141gb")
	}
}

// Ensure that held-out.json has the predictions of the points outside the fit. -update writes the file.
func TestHeldOutPointsHaveTheirPredictions(t *testing.T) {
	var text bytes.Buffer
	for _, gpu := range MeasuredGPUs() {
		all := heldOutOn(t, gpu, openVLLM().GPUs[gpu])
		points := all.HeldOut
		all.HeldOut = nil
		head, err := json.Marshal(all)
		require.NoError(t, err)
		separator := ",\n"
		if text.Len() == 0 {
			separator = "[\n"
		}
		fmt.Fprintf(&text, "%s\t%s[\n", separator, bytes.TrimSuffix(head, []byte("null}")))
		for i, p := range points {
			row, err := json.Marshal(p)
			require.NoError(t, err)
			fmt.Fprintf(&text, "\t\t%s%s\n", row, map[bool]string{true: ","}[i < len(points)-1])
		}
		text.WriteString("\t]}")
	}
	text.WriteString("\n]\n")
	const file = "published/held-out.json"
	if *update {
		require.NoError(t, os.WriteFile(file, text.Bytes(), 0o644))
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("another processor may round differently")
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, string(want) == text.String(), "the constants or the points have changed: run this test with -update")
}

func heldOutOn(t *testing.T, gpu string, e Engine) gpuPoints {
	fitted, heldOut := halves(gpu)
	all := gpuPoints{GPU: gpu, Points: len(fitted) + len(heldOut)}
	for _, p := range slices.Concat(fitted, heldOut) {
		if !slices.Contains(all.Types, p.DType) {
			all.Types = append(all.Types, p.DType)
		}
		all.SmallKV = all.SmallKV || p.KV == "fp8"
	}
	slices.Sort(all.Types)
	for _, p := range heldOut {
		p.Predicted = p.predict(t, e)
		p.GPU = ""
		all.HeldOut = append(all.HeldOut, p.Published)
	}
	return all
}

// Ensure that the error for a GPU without constants names all GPUs with constants.
func TestTheEngineIsRefusedWhereItHasNoConstants(t *testing.T) {
	_, err := OpenVLLM("mi300x")
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, `it has constants for a100-80gb, b200-180gb`)
	require.ErrorContains(t, err, `not for "mi300x"; use llmsim calibrate`)
	s := roofline(t, "llama-7b", "a100-80gb", 1)
	require.Contains(t, timed(t, s.On(engineOn(t, "a100-80gb"))).Describe(), "fitted to half of 11 published points")
	require.Contains(t, timed(t, s).Describe(),
		"without data (--engine vllm is newer, fitted to measurements on a100-80gb)")
}
