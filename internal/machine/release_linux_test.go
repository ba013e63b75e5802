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
		pages := 0 // of files, and of files in memory
		for _, found := range regexp.MustCompile(`Rss(?:File|Shmem):\s*(\d+) kB`).FindAllSubmatch(status, -1) {
			kilobytes, err := strconv.Atoi(string(found[1]))
			require.NoError(t, err)
			pages += kilobytes
		}
		return pages
	}
	before := resident()
	ReleaseProgram()
	require.Less(t, resident(), before)
}
