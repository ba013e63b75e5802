package volume

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Names of mount points are chosen by whoever mounts.
func FuzzParseMountInfo(f *testing.F) {
	f.Add("36 35 98:0 / /pods/u1/a\\040b rw - ext4 /dev/root rw\n", "/pods/u1")
	f.Add("36 35 98:0 / /pods/u10 rw - ext4 /dev/root rw\nx\n", "/pods/u1")
	f.Fuzz(func(t *testing.T, data, dir string) {
		points, err := parseMountInfo(strings.NewReader(data), dir)
		if err != nil {
			return
		}
		for _, p := range points {
			require.True(t, p == dir || strings.HasPrefix(p, dir+"/"), "%q is not below %q", p, dir)
		}
	})
}
