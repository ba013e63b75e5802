package machine

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the start of the program has used of it is not resident any more, and it goes on.
func TestReleaseProgram(t *testing.T) {
	resident := func() int {
		status, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		found := regexp.MustCompile(`RssFile:\s*(\d+) kB`).FindSubmatch(status)
		require.NotNil(t, found)
		kilobytes, err := strconv.Atoi(string(found[1]))
		require.NoError(t, err)
		return kilobytes
	}
	before := resident()
	ReleaseProgram()
	require.Less(t, resident(), before)
}
