package gradescope

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func metadataOf(t *testing.T, text string) (metadata, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "submission_metadata.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	return readMetadata(file)
}

func TestGradescopesMetadataIsRead(t *testing.T) {
	m, err := metadataOf(t, `{
		"id": 123456, "created_at": "2026-11-21T12:10:00.365935-08:00",
		"assignment": {"due_date": null, "total_points": "100.0"}, "users": [{"email": "ada@example.com"}],
		"previous_submissions": [
			{"submission_time": "2026-11-21T12:05:00.000000-08:00", "score": "81.5", "autograder_error": false,
			 "results": {"score": 81.5, "execution_time": 3.5, "tests": [{"score": 1.0, "name": "a", "tags": []}], "extra_data": {"counts": true}, "leaderboard": []}},
			{"submission_time": "2026-11-21T20:04:00Z", "score": 70.0, "autograder_error": null},
			{"submission_time": "2026-11-21T12:03:00-08:00", "score": null, "autograder_error": true, "results": null},
			{"submission_time": "2026-11-21T12:11:00-08:00", "score": 99}]}`)
	require.NoError(t, err)
	require.Len(t, m.Previous, 3, "a later one is none before")
	require.True(t, m.Previous[0].Errored)
	require.True(t, m.Previous[1].Time.Equal(clock(4)))
	require.Equal(t, 81.5, m.Previous[2].Score)
	require.Equal(t, 81.5, m.last().Results.Score)
}

func TestMetadataThatCannotBeRead(t *testing.T) {
	_, err := readMetadata("/nonexistent")
	require.ErrorContains(t, err, "metadata: ")
	for _, text := range []string{"", "{", "[]", `"x"`, "{}", `{"created_at": 12}`, `{"created_at": "yesterday"}`,
		`{"created_at": "2026-11-21T12:10:00Z", "previous_submissions": {}}`} {
		m, err := metadataOf(t, text)
		require.ErrorContains(t, err, "metadata: ", text)
		require.Zero(t, m, text)
	}
	m, err := metadataOf(t, `{"created_at": "2026-11-21T12:10:00-08:00", "previous_submissions": [
		7, {"score": 1}, {"submission_time": "2026-11-21T12:05:00-08:00", "score": 1, "results": [1]}]}`)
	require.ErrorContains(t, err, "previous_submissions[0]")
	require.ErrorContains(t, err, "previous_submissions[1]: no submission_time")
	require.ErrorContains(t, err, "previous_submissions[2]: results")
	require.Len(t, m.Previous, 1, "what can be read is kept")
	require.Nil(t, m.Previous[0].Results)
}
