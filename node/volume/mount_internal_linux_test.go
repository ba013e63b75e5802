package volume

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestHugePageOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		limit *resource.Quantity
		want  string
	}{
		"no limit":   {nil, "mode=1777,pagesize=2097152"},
		"limit of 0": {ptr.To(resource.MustParse("0")), "mode=1777,pagesize=2097152"},
		"limit":      {ptr.To(resource.MustParse("6Mi")), "mode=1777,pagesize=2097152,size=6291456"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, hugePageOptions(2<<20, tc.limit, access{0o777, -1}))
		})
	}
}

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
