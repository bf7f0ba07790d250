package calibrate

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/cost"
)

// Ensure that tables are read as spreadsheets and other programs write them. An error must name the unreadable part.
func TestTablesAreReadAsProgramsWriteThem(t *testing.T) {
	const plain = "batch,context,prompt,seconds\n4,128,16,0.0125\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(plain))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	want := []Point{{Label: "batch 4, context 128 each, prompt 16", Steps: 1, Seqs: 4, Context: 512, Prompt: 16,
		Seconds: 0.0125}}
	for _, c := range []struct{ name, text, wantErr string }{
		{"commas", plain, ""},
		{"byte order mark and CRLF", "\ufeff" + strings.ReplaceAll(plain, "\n", "\r\n"), ""},
		{"semicolons and decimal commas", "batch;context;prompt;seconds\n4;128;16;0,0125\n", ""},
		{"tabs, upper case, another order, another column",
			"SECONDS\tBatch\tcontext\tnote\tprompt\n0.0125\t4\t128\tidle\t16\n", ""},
		{"empty cells between tabs", "\tseconds\tbatch\tcontext\tnote\tprompt\tnote\n0\t0.0125\t4\t128\t\t16\t\n", ""},
		{"rows without values between tabs", strings.ReplaceAll(plain, ",", "\t") + "\t\t\t\n", ""},
		{"rows without values", "batch,context,prompt,seconds\n,,,\n\n4,128,16,0.0125\n , , , \n", ""},
		{"gzipped", packed.String(), ""},
		{"cut off", packed.String()[:packed.Len()-6], "gzip file is damaged or cut off"},
		{"other headers", "Batch Size,Time (ms)\n1,2\n", `no column "batch" among ["Batch Size" "Time (ms)"]`},
		{"decimal commas between commas", "batch,context,prompt,seconds\n4,128,16,\"0,0125\"\n",
			`"0,0125" is not a number of at least 0: write 0.0125, or separate the columns by semicolons`},
		{"negative", "batch,context,prompt,seconds\n4,128,16,-1\n", `column "seconds": "-1" is not a number of at least 0`},
		{"not a number", "batch,context,prompt,seconds\n4,128,16,nan\n", `line 2: column "seconds": "nan" is not a number`},
		{"infinite", "batch,context,prompt,seconds\n4,inf,16,1\n", `column "context": "inf" is not a number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			points, err := Read(file(t, c.text), Lengths{})
			if c.wantErr != "" {
				require.ErrorIs(t, err, ErrInput)
				require.ErrorContains(t, err, c.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, points)
		})
	}
}

// Ensure that a fit lists undetermined times, even if its errors are small.
func TestAFitSaysWhatItCannotKnow(t *testing.T) {
	line := cost.Linear{Base: 8, Seq: 0.15, Context: 4e-5, Prompt: 0.03}
	measure := func(batches, contexts, prompts []float64) (points []Point) {
		for _, b := range batches {
			for _, c := range contexts {
				for _, p := range prompts {
					points = append(points, Point{Steps: 1, Seqs: b, Context: b * c, Prompt: p,
						Seconds: 1e-3 * (line.Base + line.Seq*b + line.Context*b*c + line.Prompt*p)})
				}
			}
		}
		return points
	}
	for _, c := range []struct {
		name   string
		points []Point
		want   string
		doubts []string
	}{
		{"several of all", measure([]float64{1, 8, 64}, []float64{128, 2048}, []float64{0, 256}),
			"measured with 1 to 64 sequences of 128 to 2048 tokens and up to 256 prompt tokens", nil},
		{"one length", measure([]float64{1, 2, 4, 8, 16, 32, 64}, []float64{576}, []float64{0, 256}),
			"measured with 1 to 64 sequences of 576 to 576 tokens", []string{"equally long"}},
		{"one batch size", measure([]float64{8}, []float64{128, 256, 512, 1024}, []float64{0, 64, 256}),
			"measured with 8 to 8 sequences", []string{"about the same size"}},
		{"no prompts", measure([]float64{1, 8, 64}, []float64{128, 512, 2048}, []float64{0}),
			"of 128 to 2048 tokens; without prompts", []string{"without prompts"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fit, err := Fit(c.points)
			require.NoError(t, err)
			require.Less(t, fit.Fit.Worst, 0.02)
			text := fit.Fit.String()
			require.Contains(t, text, c.want)
			for _, doubt := range []string{"equally long", "about the same size", "without prompts"} {
				require.Equal(t, len(c.doubts) == 1 && c.doubts[0] == doubt, strings.Contains(text, doubt), text)
			}
		})
	}
}

// Ensure that results of several models in one file are refused. Ensure that failed requests are reported.
func TestACostFileIsOfOneModel(t *testing.T) {
	serve := func(model string, seconds string) string {
		return `{"model_id": "` + model + `", "num_prompts": 100, "completed": 90, "duration": ` + seconds +
			`, "total_input_tokens": 9000, "total_output_tokens": 9000, "mean_tpot_ms": 20, "mean_ttft_ms": 50}`
	}
	fit := fitOf(t, serve("llama", "10")+serve("llama", "20"))
	require.Equal(t, "llama", fit.Model)
	require.Contains(t, fit.Residuals[0].Label, "(10 of 100 failed)")
	points, err := Read(file(t, serve("llama", "10")+serve("qwen", "20")), Lengths{})
	require.NoError(t, err)
	_, err = Fit(points)
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "several models (llama, qwen)")
}
